"""``lkf train|eval|sample|report|export|doctor``: words for what the entry points do."""

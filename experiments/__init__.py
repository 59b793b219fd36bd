"""The reproduction: the paper's tables, comparisons and studies. The library never imports it."""

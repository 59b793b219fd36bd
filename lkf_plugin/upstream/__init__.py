"""host=mdlm: a run inside an unmodified MDLM checkout."""

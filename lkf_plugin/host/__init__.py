"""Hosts: where a run lives. ``mdlm`` is an MDLM checkout, ``builtin`` our twin of the used part."""

"""Checkpoints of other repositories in and out: layouts, safe unpickling, the mask's row."""

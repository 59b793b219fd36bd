"""A run folder: its settings, identity and lock, and a trained run back from it."""

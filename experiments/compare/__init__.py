"""Every method on one corpus, side by side."""

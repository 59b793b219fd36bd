"""Runs as folders for the Hugging Face hub, and back.

``modeling_lkf.py`` is copied into every export as it stands, and imports nothing of this package.
"""

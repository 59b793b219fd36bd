"""Runs side by side: what differs, how they did, and a figure."""

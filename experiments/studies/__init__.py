"""The synthetic studies."""

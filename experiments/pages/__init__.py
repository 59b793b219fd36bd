"""Pages of docs/ whose tables are filled from records."""

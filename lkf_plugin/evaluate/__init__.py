"""Judging samples: generative perplexity, diversity, and the record that a cell is kept in."""

"""Models that judge samples from outside: generative perplexity, MAUVE."""

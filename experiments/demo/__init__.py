"""make demo: agreement broken by independent draws, kept by a latent."""

"""What a sampler of few steps thinks of a given text: bounds and exact likelihoods."""

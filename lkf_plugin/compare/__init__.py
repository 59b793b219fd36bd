"""Every method on one corpus: train, bound the likelihood, sample, and put it all in one table."""

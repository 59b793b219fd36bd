"""The token head: log-probabilities of given tokens without [N, V] logits, in several backends."""

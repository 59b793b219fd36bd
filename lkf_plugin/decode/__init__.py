"""Decoding: one rollout engine, scores of finished candidates, and small policies over them."""

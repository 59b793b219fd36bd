"""Training machinery around the mathematics: seeds, EMA, optimizers, logs, checkpoints."""

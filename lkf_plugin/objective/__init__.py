"""Training objectives and the marginal NELBO, as functions of log-probabilities."""

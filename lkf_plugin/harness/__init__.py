"""A run under EleutherAI's lm-evaluation-harness: ``lkf harness --model_args path=RUN ...``."""

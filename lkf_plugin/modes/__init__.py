"""What the modes of main.py do: train, ppl_eval, sample_eval."""

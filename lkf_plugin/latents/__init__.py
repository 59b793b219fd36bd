"""Laws of the latents of one step: one per sequence, a tree over blocks, a chain over blocks.

Everything here is a function of log-probabilities: it knows no vocabulary, no trunk and no
trainer. ``structure`` holds the seam, and one file per structure fills it in.
"""

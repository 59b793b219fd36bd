"""Corpora whose optimum is known exactly: AgreeText, hidden agreement and parity.

Pure maths on tensors: samples, exact transitions, exact optima of the losses by the number of
components, and the validity that a perfect few-step sampler reaches. No network, no trainer.
"""

"""Samples of a row under its own sampler, or the likeliest of several chains."""

from __future__ import annotations

from experiments.compare.rows import BEST, CANDIDATES, SCORE_DRAWS, components
from lkf_plugin.decode.policy import Decoded
from lkf_plugin.evaluate.policies import policy_settings
from lkf_plugin.runs.load import LoadedRun


def sample_row(
    run: LoadedRun, row: str, decode: str, J: int, samples: int, seed: int, batch_size: int
) -> Decoded:
    """``samples`` texts in J steps.

    Args:
        run: the row's trained model.
        row: its name.
        decode: ``own`` or ``best``: best-of-M where there are components, else best of eight.
        J: steps.
        samples: how many.
        seed: of the draws.
        batch_size: texts decoded at once; no sample depends on it.
    """
    M = components(row)
    if decode == BEST and M in (None, 1):
        settings = policy_settings("best_of_n", num_candidates=CANDIDATES, score_draws=SCORE_DRAWS)
    elif decode == BEST:
        settings = policy_settings("best_of_m", score_draws=SCORE_DRAWS)
    else:
        settings = {"policy": "auto"} if M is None else policy_settings("commit")
    return run.sample(settings, J, samples, seed, batch_size)

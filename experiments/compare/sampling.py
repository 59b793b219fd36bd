"""How a row is sampled: by its own sampler, or as the likeliest of several chains."""

from __future__ import annotations

from typing import Any

from experiments.compare.methods import BEST, CANDIDATES, SCORE_DRAWS, components
from lkf_plugin.evaluate.policies import policy_settings


def row_settings(row: str, decode: str) -> dict[str, Any]:
    """Decoding settings of a row.

    Args:
        row: its name.
        decode: ``own`` or ``best``: best-of-M where there are components, else best of eight.
    """
    M = components(row)
    if decode == BEST and M in (None, 1):
        return policy_settings("best_of_n", num_candidates=CANDIDATES, score_draws=SCORE_DRAWS)
    if decode == BEST:
        return policy_settings("best_of_m", score_draws=SCORE_DRAWS)
    return {"policy": "auto"} if M is None else policy_settings("commit")

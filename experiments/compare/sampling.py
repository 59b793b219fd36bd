"""Samples of a row under its own sampler, or the likeliest of several chains."""

from __future__ import annotations

import torch

from experiments.compare.rows import BEST, CANDIDATES, SCORE_DRAWS, components
from lkf_plugin.decode.policy import Decoded
from lkf_plugin.evaluate.cells import Samples, decode_cell
from lkf_plugin.evaluate.policies import policy_settings
from lkf_plugin.runs.load import LoadedRun
from lkf_plugin.train.seeding import seed_position


@torch.no_grad()
def sample_row(
    run: LoadedRun, row: str, decode: str, J: int, samples: int, seed: int, batch_size: int
) -> Samples:
    """``samples`` texts in J steps.

    Args:
        run: the row's trained model.
        row: its name.
        decode: ``own`` or ``best``: best-of-M where there are components, else best of eight.
        J: steps.
        samples: how many.
        seed: of the draws.
        batch_size: texts decoded at once; a baseline's draws depend on it.
    """
    M = components(row)
    if M is None:
        return _of_baseline(run, row, decode, J, samples, seed, batch_size)
    settings = policy_settings("commit")
    if decode == BEST and M == 1:
        settings = policy_settings("best_of_n", num_candidates=CANDIDATES, score_draws=SCORE_DRAWS)
    elif decode == BEST:
        settings = policy_settings("best_of_m", score_draws=SCORE_DRAWS)
    return decode_cell(run, settings, J, samples, seed, batch_size, progress=False)


def _of_baseline(
    run: LoadedRun, row: str, decode: str, J: int, samples: int, seed: int, batch_size: int
) -> Samples:
    module, config = run.module, run.config
    config.decode.num_candidates, config.decode.score_draws = CANDIDATES, SCORE_DRAWS
    module.policy = "best_of_n" if decode == BEST else row
    usual = config.loader.eval_batch_size
    parts: list[Decoded] = []
    seed_position(seed, "compare", decode, J)
    try:
        for first in range(0, samples, batch_size):
            config.loader.eval_batch_size = min(batch_size, samples - first)
            module._sample(J, config.sampling.eps)
            parts.append(module.last_decoded)
    finally:
        config.loader.eval_batch_size = usual
    network_calls = sum(part.network_calls * len(part.x_GL) for part in parts) / samples
    ids_SL = torch.cat([part.x_GL for part in parts]).cpu()
    component_S = torch.cat([part.component_G for part in parts]).cpu()
    return Samples(ids_SL, component_S, None, None, parts[0].steps_calls, network_calls, {})

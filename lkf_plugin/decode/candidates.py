"""Candidates of each sample, run side by side, and the selectors that pick one.

Shape legend: G samples, C candidates a sample, R rows = the candidates that exist, M components.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lkf_plugin.decode.engine import Rollouts
from lkf_plugin.decode.policy import Decoded, DecodeRequest
from lkf_plugin.decode.scores import mixture_nelbo
from lkf_plugin.errors import UserError

SELECTORS = ("nelbo", "evidence")


def selector_calls(settings: Mapping[str, Any]) -> int:
    """Network calls that a score costs a candidate.

    Raises:
        UserError: unknown selector.
    """
    if settings["selector"] not in SELECTORS:
        raise UserError(
            f"decode.selector={settings['selector']} is unknown: take {' or '.join(SELECTORS)}."
        )
    return settings["score_draws"] if settings["selector"] == "nelbo" else 0


def run_and_select(
    request: DecodeRequest, component_GC: Tensor, exists_GC: Tensor, settings: Mapping[str, Any]
) -> Decoded:
    """Runs every candidate that exists and delivers the one of the lowest score.

    Args:
        request: samples to be made.
        component_GC: frozen component of each candidate.
        exists_GC: bool; at least one a sample.
        settings: ``selector`` (``nelbo``: Monte Carlo mixture NELBO with ``score_draws`` draws
            shared by the candidates of one sample; ``evidence``: minus the log-probability of the
            tokens that a chain revealed along its own path) and ``shared_noise`` (one noise
            stream for all candidates of a sample).
    """
    draws = selector_calls(settings)
    engine, network = request.engine, request.engine.network
    sample_R, candidate_R = exists_GC.nonzero(as_tuple=True)
    chain_R = torch.zeros_like(candidate_R) if settings["shared_noise"] else candidate_R
    start_RL = request.x_GL[sample_R]
    rollouts = Rollouts.start(
        start_RL, component_GC[sample_R, candidate_R], request.chain_seeds(sample_R, chain_R)
    )
    engine.finish(rollouts)
    if settings["selector"] == "nelbo":
        free_RL = start_RL == network.mask_index
        seed_R = request.seed_G[sample_R]
        score_R = mixture_nelbo(network, rollouts.x_RL, free_RL, seed_R, draws)
    else:
        score_R = -rollouts.evidence_R
    score_GC = torch.full(exists_GC.shape, torch.inf, dtype=torch.float64, device=score_R.device)
    score_GC[sample_R, candidate_R] = score_R
    winner_G = score_GC.argmin(-1)  # the first of equals
    row_GC = torch.zeros(exists_GC.shape, dtype=torch.int64, device=score_R.device)
    row_GC[sample_R, candidate_R] = torch.arange(sample_R.numel(), device=score_R.device)
    row_G = row_GC.gather(-1, winner_G[:, None]).squeeze(-1)
    samples = request.x_GL.shape[0]
    rows_a_sample = sample_R.numel() / samples
    return Decoded(
        rollouts.x_RL[row_G],
        rollouts.component_R[row_G],
        score_GC,
        (engine.num_steps + draws) * rows_a_sample,
        rollouts.calls_R.sum().item() / samples + draws * rows_a_sample,
    )

"""best_of_m: one chain a component, the model's own score picks (paper, Alg. bestofm)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lkf_plugin.decode.engine import Rollouts
from lkf_plugin.decode.policy import Decoded, DecodeRequest
from lkf_plugin.decode.scores import mixture_nelbo
from lkf_plugin.errors import UserError
from lkf_plugin.objective.diagnostics import dead_threshold

SELECTORS = ("nelbo", "evidence")


def living_components(prior_GM: Tensor, min_prior: float | None) -> Tensor:
    """Components that may give candidates, bool [G, M].

    A component whose prior is close to zero never learned to speak; its low-entropy salad would
    win the selection. The likeliest component of a sample always lives.
    """
    floor = dead_threshold(prior_GM.shape[1]) if min_prior is None else min_prior
    living_GM = prior_GM.exp() >= floor
    return living_GM.scatter(-1, prior_GM.argmax(-1, keepdim=True), True)


def best_of_m(request: DecodeRequest, settings: Mapping[str, Any]) -> Decoded:
    """The candidate with the lowest score, the first of equals.

    ``settings``: ``selector`` = ``nelbo`` (T = ``score_draws`` draws of (tau, mask), shared by the
    candidates of one sample; M (J + T) calls) or ``evidence`` (minus the log-probability of the
    tokens that each component revealed along its own path; M J calls); ``shared_noise`` gives one
    noise stream to all candidates of a sample; ``min_prior`` is the floor of
    ``living_components``.

    Raises:
        UserError: unknown selector.
    """
    selector = settings["selector"]
    if selector not in SELECTORS:
        raise UserError(f"decode.selector={selector} is unknown: take {' or '.join(SELECTORS)}.")
    engine, network = request.engine, request.engine.network
    prior_GM = request.prior()
    living_GM = living_components(prior_GM, settings["min_prior"])
    sample_R, component_R = living_GM.nonzero(as_tuple=True)
    chain_R = torch.zeros_like(component_R) if settings["shared_noise"] else component_R
    start_RL = request.x_GL[sample_R]
    rollouts = Rollouts.start(start_RL, component_R, request.chain_seeds(sample_R, chain_R))
    engine.finish(rollouts)
    calls_R = rollouts.calls_R.double()
    steps_calls = float(engine.num_steps)
    if selector == "nelbo":
        draws = settings["score_draws"]
        free_RL = start_RL == network.mask_index
        score_R = mixture_nelbo(
            network, rollouts.x_RL, free_RL, request.seed_G[sample_R], draws
        )
        calls_R += draws
        steps_calls += draws
    else:
        score_R = -rollouts.evidence_R
    score_GM = torch.full_like(prior_GM, torch.inf).index_put((sample_R, component_R), score_R)
    component_G = score_GM.argmin(-1)
    row_GM = torch.zeros_like(living_GM, dtype=torch.int64)
    row_GM[sample_R, component_R] = torch.arange(sample_R.numel(), device=sample_R.device)
    winner_G = row_GM.gather(-1, component_G[:, None]).squeeze(-1)
    G = request.x_GL.shape[0]
    return Decoded(
        rollouts.x_RL[winner_G],
        component_G,
        score_GM,
        steps_calls * sample_R.numel() / G,
        calls_R.sum().item() / G,
    )

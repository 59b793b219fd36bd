"""The mixture objective with a backward pass only where responsibilities are.

Since d(-log Psi) = -sum_gk gamma_gk d ell_gk - sum counts d log potentials, the responsibilities
can be found without a graph and the graph built only for the (sequence, component) pairs that
matter, packed over the batch, and in each only for the positions whose group gives it weight.
Memory then grows with the pairs that are kept, not with M.

* a threshold keeps what has gamma > threshold: exact at 0, error of the order of the threshold
  else;
* ``drawn`` = S draws S components per group from gamma, the groups of a sequence by the same
  uniforms, and weighs each by its count / S: unbiased at any S, and what saves where
  responsibilities are broad;
* at the site ``after_attention`` a position pays for its own components only: each group has
  uniforms of its own, spread evenly over its S draws;
* ``drawn`` with ``keep_above`` keeps what is above that and draws S from the rest: unbiased,
  with less noise where one component dominates.

The loss value, the gradient of the potentials and its way into the trunk are exact in all of them.
With one component there is nothing to find out, and the first pass falls away.

Host and device meet twice a step: for the number of counted positions, and for the number of kept
pairs with their positions (once more where blocks have latents of their own).

Shape legend: B sequences, G groups, M components, L positions, R kept pairs, N counted positions,
Q positions of kept pairs.
Unit: nats.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lkf_plugin.backbone.dropout import PairDraw
from lkf_plugin.backbone.latent import LatentKernelBackbone
from lkf_plugin.backbone.stack import Places
from lkf_plugin.backbone.trunk import TrunkState
from lkf_plugin.latents.draws import drawn_weights, systematic
from lkf_plugin.latents.pairs import WeightedPairs, weighted_pairs, weighted_places
from lkf_plugin.latents.structure import detached, expected_log_prior
from lkf_plugin.objective.components import (
    ComponentScores,
    HeadSettings,
    counted_places,
    places_of_components,
    spread,
)
from lkf_plugin.objective.likelihood import MixtureObjective
from lkf_plugin.token_head.logprob import token_logprob, weighted_token_logprob


@dataclass(frozen=True)
class BackwardPlan:
    """Which pairs get a backward pass.

    Attributes:
        drawn: S components drawn a group, or 0 for the threshold rule.
        threshold: of the threshold rule; what is at or below it is left out.
        keep_above: of the draw; what is above it is kept with weight gamma, and the draw is from
            the rest. 1 keeps none.
    """

    drawn: int = 0
    threshold: float = 0.0
    keep_above: float = 1.0


def group_weights(gamma_BGM: Tensor, plan: BackwardPlan, apart: bool = False) -> Tensor:
    """Weight of each component in each group, [B, G, M]; zero where there is no backward pass.

    The draw is by inverse CDF in float64, which unlike ``torch.multinomial`` asks nothing of the
    device.

    Args:
        gamma_BGM: responsibilities.
        plan: which to keep.
        apart: groups draw apart from one another, since nothing is spared where they agree.
    """
    if plan.drawn == 0:
        return torch.where(gamma_BGM > plan.threshold, gamma_BGM, 0.0)
    batch, groups, device = *gamma_BGM.shape[:2], gamma_BGM.device
    if apart:
        u_BG = torch.rand(batch, groups, dtype=torch.float64, device=device)
        return drawn_weights(gamma_BGM, systematic(u_BG, plan.drawn), plan.keep_above)
    u_BS = torch.rand(batch, plan.drawn, dtype=torch.float64, device=device)
    return drawn_weights(gamma_BGM, u_BS[:, None], plan.keep_above)


def two_phase_objective(
    backbone: LatentKernelBackbone,
    xt_BL: Tensor,
    x0_BL: Tensor,
    counted_BL: Tensor,
    sigma_B: Tensor,
    weight_B: Tensor,
    head: HeadSettings,
    plan: BackwardPlan,
) -> tuple[ComponentScores, MixtureObjective]:
    """Component scores (no graph in ``logp_BML``) and the objective of a batch.

    Arguments as in ``component_scores`` and ``mixture_objective``.
    """
    assert head.backend != "mdlm", "MDLM's order computes every position"
    batch, length = xt_BL.shape
    state = backbone.encode(xt_BL, sigma_B)
    potentials = backbone.route(state)
    places = counted_places(counted_BL)
    target_N = x0_BL[places]
    if backbone.num_components == 1:
        return _one_component(backbone, state, potentials, places, target_N, weight_B, head)

    structure = backbone.structure
    draw = PairDraw.fresh(batch)
    logp_BML = _scores_without_graph(backbone, state, places, target_N, length, head, draw)
    posterior = structure.posterior(detached(potentials), structure.blocks.sums(logp_BML))
    value_B = -posterior.log_psi_B * weight_B

    weight_BGM = group_weights(posterior.gamma_BGM.contiguous(), plan, backbone.late)
    pairs = needed_pairs(backbone, weight_BGM, places, length)
    at = Places(pairs.pair_Q, pairs.position_Q)
    hidden_QD = backbone.branch_hidden(state, at, pairs.row_R, pairs.component_R, draw)
    coefficient_Q = -weight_B[pairs.row_R][pairs.pair_Q] * pairs.weight_Q
    target_Q = target_N[pairs.source_Q]
    surrogate, _ = _weighted_head(backbone, hidden_QD, target_Q, coefficient_Q, head)
    surrogate = surrogate - (weight_B * expected_log_prior(potentials, posterior.counts)).sum()
    # the value of the objective with the gradient of the surrogate
    total = value_B.sum() + (surrogate - surrogate.detach())
    scores = ComponentScores(potentials, logp_BML)
    return scores, MixtureObjective(total, value_B, posterior.gamma_BGM)


def needed_pairs(
    backbone: LatentKernelBackbone, weight_BGM: Tensor, places: Places, length: int
) -> WeightedPairs:
    """What of the branch has weight at the counted places."""
    group_L = backbone.structure.blocks.group_of(length, weight_BGM.device)
    find = weighted_places if backbone.late else weighted_pairs
    return find(weight_BGM, group_L, *places)


def _one_component(
    backbone: LatentKernelBackbone,
    state: TrunkState,
    potentials: Any,
    places: Places,
    target_N: Tensor,
    weight_B: Tensor,
    head: HeadSettings,
) -> tuple[ComponentScores, MixtureObjective]:
    """gamma is 1, so the head's weights are known and one pass makes value and gradient."""
    hidden_ND = backbone.branch_hidden(state, places)
    total, logp_N = _weighted_head(backbone, hidden_ND, target_N, -weight_B[places.row_N], head)
    logp_B1L = spread(logp_N, places, state.h_BLD.shape[:2], 1)
    nll_B = -logp_B1L.sum((1, 2)) * weight_B
    ones_B11 = torch.ones_like(logp_B1L[:, :, :1]).detach()
    return ComponentScores(potentials, logp_B1L), MixtureObjective(total, nll_B, ones_B11)


def components_at_once(tokens: int, device: torch.device) -> int:
    """Components of the pass without a graph that are run together.

    As many as keep the device busy, no more: so its memory does not grow with M.
    """
    enough = 1024 if device.type == "cpu" else 65_536
    return max(1, enough // tokens)


@torch.no_grad()
def _scores_without_graph(
    backbone: LatentKernelBackbone,
    state: TrunkState,
    places: Places,
    target_N: Tensor,
    length: int,
    head: HeadSettings,
    draw: PairDraw,
) -> Tensor:
    """logp_BML of all pairs, a few components at a time."""
    M, batch, device = backbone.num_components, draw.batch, target_N.device
    # behind attention, rows are as long as their counted positions
    tokens = places.row_N.numel() if backbone.late else batch * length
    step = components_at_once(max(tokens, 1), device)
    rows_B = torch.arange(batch, device=device)
    parts = []
    for first in range(0, M, step):
        some = range(first, min(first + step, M))
        at = places_of_components(places, len(some))
        hidden_ND = backbone.branch_hidden(
            state,
            at,
            rows_B.repeat_interleave(len(some)),
            torch.arange(some.start, some.stop, device=device).repeat(batch),
            draw,
            some,
        )
        logp_N = token_logprob(
            hidden_ND,
            backbone.head_weight,
            backbone.head_bias,
            target_N.repeat_interleave(len(some)),
            backbone.mask_index,
            head.backend,
            head.chunk_rows,
        )
        parts.append(spread(logp_N, at, torch.Size((batch, length)), len(some)))
    return torch.cat(parts, dim=1)


def _weighted_head(
    backbone: LatentKernelBackbone,
    hidden_ND: Tensor,
    target_N: Tensor,
    coefficient_N: Tensor,
    head: HeadSettings,
) -> tuple[Tensor, Tensor]:
    return weighted_token_logprob(
        hidden_ND,
        backbone.head_weight,
        backbone.head_bias,
        target_N,
        coefficient_N,
        backbone.mask_index,
        head.backend,
        head.chunk_rows,
    )

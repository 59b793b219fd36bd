"""The mixture objective with a backward pass only where responsibilities are.

Since d(-log Psi) = -sum_k gamma_k d(log w_k + ell_k), the responsibilities can be found without a
graph and the graph built only for the (sequence, component) pairs that matter, packed over the
batch. Memory then grows with the pairs that are kept, not with M.

* a threshold keeps the pairs with gamma > threshold: exact at 0, error of the order of the
  threshold else;
* ``drawn`` = S draws S components a sequence from gamma and weighs each by its count / S:
  unbiased at any S, and what saves where responsibilities are broad;
* ``drawn`` with ``keep_above`` keeps the pairs above that and draws S from the rest: unbiased,
  with less noise where one component dominates.

The loss value, the router's gradient and its way into the trunk are exact in all of them. With one
component there is nothing to find out, and the first pass falls away.

Host and device meet twice a step: for the number of counted positions, and for the number of kept
pairs with their positions.

Shape legend: B sequences, M components, L positions, R kept pairs, N counted positions.
Unit: nats.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lkf_plugin.backbone.dropout import PairDraw
from lkf_plugin.backbone.latent import LatentKernelBackbone
from lkf_plugin.backbone.stack import Places
from lkf_plugin.backbone.trunk import TrunkState
from lkf_plugin.kernel import log_mixture, responsibilities
from lkf_plugin.objective.components import (
    ComponentScores,
    HeadSettings,
    counted_places,
    places_of_components,
    spread,
)
from lkf_plugin.objective.mixture import MixtureObjective
from lkf_plugin.token_head.logprob import token_logprob, weighted_token_logprob


@dataclass(frozen=True)
class BackwardPlan:
    """Which pairs get a backward pass.

    Attributes:
        drawn: S components drawn a sequence, or 0 for the threshold rule.
        threshold: of the threshold rule; pairs at or below it are left out.
        keep_above: of the draw; pairs above it are kept with weight gamma, and the draw is from
            the rest. 1 keeps none.
    """

    drawn: int = 0
    threshold: float = 0.0
    keep_above: float = 1.0


def pair_coefficients(gamma_BM: Tensor, plan: BackwardPlan) -> Tensor:
    """Weight of each pair in the gradient, [B, M]; zero where there is no backward pass.

    The draw is by inverse CDF in float64, which unlike ``torch.multinomial`` asks nothing of the
    device.
    """
    if plan.drawn == 0:
        return torch.where(gamma_BM > plan.threshold, gamma_BM, 0.0)
    kept_BM = torch.where(gamma_BM > plan.keep_above, gamma_BM, 0.0)
    rest_BM = (gamma_BM - kept_BM).double()
    cdf_BM = rest_BM.cumsum(-1)
    mass_B1 = cdf_BM[:, -1:]
    u_BS = torch.rand(len(gamma_BM), plan.drawn, dtype=torch.float64, device=gamma_BM.device)
    picks_BS = torch.searchsorted(cdf_BM, u_BS * mass_B1, right=True)
    picks_BS = picks_BS.clamp_max(gamma_BM.shape[1] - 1)  # where there is no rest
    count_BM = torch.zeros_like(rest_BM).scatter_add_(-1, picks_BS, torch.ones_like(u_BS))
    return kept_BM + (count_BM * mass_B1 / plan.drawn).to(gamma_BM.dtype)


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
    logw_BM = backbone.route(state)
    places = counted_places(counted_BL)
    target_N = x0_BL[places]
    if backbone.num_components == 1:
        return _one_component(backbone, state, logw_BM, places, target_N, weight_B, head)

    draw = PairDraw.fresh(batch)
    logp_BML = _scores_without_graph(backbone, state, places, target_N, length, head, draw)
    ell_BM = logp_BML.sum(-1)
    gamma_BM = responsibilities(logw_BM, ell_BM).detach()
    value_B = -log_mixture(logw_BM, ell_BM).detach() * weight_B

    coefficient_BM = pair_coefficients(gamma_BM, plan)
    row_R, component_R, at, source_N = _kept_pairs(coefficient_BM, places, batch)
    hidden_ND = backbone.branch_hidden(state, at, row_R, component_R, draw)
    weight_R = -weight_B[row_R] * coefficient_BM[row_R, component_R]
    surrogate, _ = _weighted_head(backbone, hidden_ND, target_N[source_N], weight_R[at.row_N], head)
    surrogate = surrogate - (weight_B[:, None] * gamma_BM * logw_BM).sum()
    # the value of the objective with the gradient of the surrogate
    total = value_B.sum() + (surrogate - surrogate.detach())
    return ComponentScores(logw_BM, logp_BML), MixtureObjective(total, value_B, gamma_BM)


def _one_component(
    backbone: LatentKernelBackbone,
    state: TrunkState,
    logw_B1: Tensor,
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
    ones_B1 = torch.ones_like(logw_B1).detach()
    return ComponentScores(logw_B1, logp_B1L), MixtureObjective(total, nll_B, ones_B1)


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
    step = components_at_once(batch * length, device)
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


def _kept_pairs(
    coefficient_BM: Tensor, places: Places, batch: int
) -> tuple[Tensor, Tensor, Places, Tensor]:
    """Pairs with a backward pass and their positions.

    Returns:
        (sequence of each pair, component of each pair, places of the pairs' positions, index into
        ``places`` of each of these).
    """
    device = coefficient_BM.device
    M = coefficient_BM.shape[1]
    count_B = torch.bincount(places.row_N, minlength=batch)
    first_B = count_B.cumsum(0) - count_B
    kept_BM = coefficient_BM > 0
    sizes = torch.stack((kept_BM.sum(), (kept_BM.sum(-1) * count_B).sum()))
    pairs, positions = sizes.tolist()  # host and device meet here
    order = torch.argsort((~kept_BM).flatten().to(torch.uint8), stable=True)
    pair_R = order[:pairs]
    row_R, component_R = pair_R // M, pair_R % M
    count_R = count_B[row_R]
    pair_N = torch.repeat_interleave(
        torch.arange(pairs, device=device), count_R, output_size=positions
    )
    place_in_pair_N = torch.arange(positions, device=device) - (count_R.cumsum(0) - count_R)[pair_N]
    source_N = first_B[row_R][pair_N] + place_in_pair_N
    return row_R, component_R, Places(pair_N, places.position_N[source_N]), source_N


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

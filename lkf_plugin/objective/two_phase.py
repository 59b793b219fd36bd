"""The mixture objective with a backward pass only where responsibilities are.

Since d(-log Psi) = -sum_k gamma_k d(log w_k + ell_k), the responsibilities can be found without a
graph and the graph built only for the (sequence, component) pairs that matter, packed over the
batch. Memory then grows with the pairs that are kept, not with M.

* a threshold keeps the pairs with gamma > threshold: exact at 0, error of the order of the
  threshold else;
* ``drawn`` = S draws S components a sequence from gamma and weighs each by its count / S:
  unbiased at any S, and what saves where responsibilities are broad.

The loss value, the router's gradient and its way into the trunk are exact in all of them.

Shape legend: B sequences, M components, L positions, R kept pairs. Unit: nats.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lkf_plugin.backbone.dropout import RowDraw
from lkf_plugin.backbone.latent import LatentKernelBackbone
from lkf_plugin.backbone.trunk import TrunkState
from lkf_plugin.kernel import log_mixture, responsibilities
from lkf_plugin.objective.components import (
    ComponentScores,
    HeadSettings,
    branch_token_logprobs,
)
from lkf_plugin.objective.mixture import MixtureObjective


@dataclass(frozen=True)
class BackwardPlan:
    """Which pairs get a backward pass.

    Attributes:
        drawn: S components drawn a sequence, or 0 for the threshold rule.
        threshold: pairs at or below it are left out.
    """

    drawn: int = 0
    threshold: float = 0.0


def pair_coefficients(gamma_BM: Tensor, plan: BackwardPlan) -> Tensor:
    """Weight of each pair in the gradient, [B, M]; zero where there is no backward pass."""
    if plan.drawn == 0:
        return torch.where(gamma_BM > plan.threshold, gamma_BM, 0.0)
    picks_BS = torch.multinomial(gamma_BM, plan.drawn, replacement=True)
    ones = torch.full_like(picks_BS, 1, dtype=gamma_BM.dtype)
    return torch.zeros_like(gamma_BM).scatter_add_(-1, picks_BS, ones) / plan.drawn


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
    M = backbone.num_components
    pairs = xt_BL.shape[0] * M
    state = backbone.encode(xt_BL, sigma_B)
    logw_BM = backbone.route(state)

    generator_state = _generator_states(xt_BL.device)
    with torch.no_grad():
        logp_RL = branch_token_logprobs(
            backbone,
            backbone.branch(TrunkState(*(x.detach() for x in state)), draw=RowDraw(pairs)),
            xt_BL.repeat_interleave(M, 0),
            x0_BL.repeat_interleave(M, 0),
            counted_BL.repeat_interleave(M, 0),
            head,
            backbone.mask_index,
        )
    scores = ComponentScores(logw_BM, logp_RL.unflatten(0, (-1, M)))
    ell_BM = scores.logp_BML.sum(-1)
    gamma_BM = responsibilities(logw_BM, ell_BM).detach()
    value_B = -log_mixture(logw_BM, ell_BM).detach() * weight_B

    coefficient_BM = pair_coefficients(gamma_BM, plan)
    row_R, component_R = coefficient_BM.nonzero(as_tuple=True)
    draw = RowDraw(pairs, row_R * M + component_R)
    with _same_draws(generator_state, xt_BL.device):
        kept_RL = branch_token_logprobs(
            backbone,
            backbone.branch(state, row_R, component_R, draw),
            xt_BL[row_R],
            x0_BL[row_R],
            counted_BL[row_R],
            head,
            backbone.mask_index,
        )
    weight_R = weight_B[row_R] * coefficient_BM[row_R, component_R]
    surrogate = -(weight_R * kept_RL.sum(-1)).sum()
    surrogate = surrogate - (weight_B[:, None] * gamma_BM * logw_BM).sum()
    # the value of the objective with the gradient of the surrogate
    total = value_B.sum() + (surrogate - surrogate.detach())
    return scores, MixtureObjective(total, value_B, gamma_BM)


def _generator_states(device: torch.device) -> tuple[Tensor, Tensor | None]:
    on_gpu = device.type == "cuda"
    return torch.get_rng_state(), torch.cuda.get_rng_state(device) if on_gpu else None


class _same_draws:
    """Inside, torch's generators stand where they stood at ``states``; after it, as before."""

    def __init__(self, states: tuple[Tensor, Tensor | None], device: torch.device) -> None:
        self.states, self.device = states, device

    def __enter__(self) -> None:
        self.after = _generator_states(self.device)
        self._set(self.states)

    def __exit__(self, *error: object) -> None:
        self._set(self.after)

    def _set(self, states: tuple[Tensor, Tensor | None]) -> None:
        cpu, gpu = states
        torch.set_rng_state(cpu)
        if gpu is not None:
            torch.cuda.set_rng_state(gpu, self.device)

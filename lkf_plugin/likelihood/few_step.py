r"""The few-step NELBO: a bound on the likelihood of the J-step sampler itself.

Given a reveal pattern (see ``paths``), with S_j what step j reveals and x_{t_j} the state before,

.. math:: -\log p_J(x) \le E \sum_j -\log \Psi(x_{S_j} | x_{t_j})

when the latent is drawn anew in every step, and

.. math:: -\log p_J(x) \le E\Big[-\log \sum_z \pi(z | x_{t_0})
          \exp\sum_j\sum_g \ell^{(j)}_{g z_g}\Big]

when it is drawn once, at the start: the structure's own sum on the ell of all steps. The only slack
is the mean over patterns outside the logarithm, so that J = 1 is exact. At M = 1 it is MDLM's bound
with T = J, and for J -> infinity the redrawn one tends to the marginal NELBO. No judge, no
temperature, no entropy to match: it compares over M, structures and J.

Shape legend: B sequences, R rows of a batch, M components, L positions, G groups. Unit: nats.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lkf_plugin.corruption import reveal_probabilities, sampling_times
from lkf_plugin.information.step import Estimate
from lkf_plugin.latents.structure import in_double
from lkf_plugin.likelihood.paths import drawn_steps
from lkf_plugin.likelihood.step_model import StepModel


class FewStepNats(NamedTuple):
    """Bounds on -log p_J of each sequence, float64 [B], nats per sequence."""

    redrawn_B: Tensor
    frozen_B: Tensor


def few_step_nelbo(
    model: StepModel,
    x_BL: Tensor,
    num_steps: int,
    seed_B: Tensor,
    free_BL: Tensor | None = None,
    paths: int = 1,
    eps: float = 0.0,
    batch_rows: int = 32,
) -> FewStepNats:
    """Monte Carlo bounds, the mean over drawn reveal patterns.

    Args:
        model: the sampler's step.
        x_BL: clean tokens.
        num_steps: J.
        seed_B: one seed per sequence; the same seeds give the same patterns for any model.
        free_BL: bool, what is generated; the rest is a prompt or padding. None: everything.
        paths: patterns per sequence.
        eps: end of the grid; 0 is the paper's, which leaves no residual mask.
        batch_rows: sequences per network call.
    """
    free_BL = torch.ones_like(x_BL, dtype=torch.bool) if free_BL is None else free_BL
    reveal, tau = reveal_probabilities(num_steps, eps), sampling_times(num_steps, eps)
    sums = [torch.zeros(len(x_BL), dtype=torch.float64, device=x_BL.device) for _ in range(2)]
    for path in range(paths):
        step_BL = drawn_steps(seed_B, path, x_BL.shape[1], reveal)
        for first in range(0, len(x_BL), batch_rows):
            rows = slice(first, first + batch_rows)
            nats = nats_of_pattern(model, x_BL[rows], step_BL[rows], tau, free_BL[rows])
            for total, part in zip(sums, nats, strict=True):
                total[rows] += part / paths
    return FewStepNats(*sums)


@torch.no_grad()
def nats_of_pattern(
    model: StepModel, x_RL: Tensor, step_RL: Tensor, tau: Sequence[float], free_RL: Tensor
) -> FewStepNats:
    """-log p(x | pattern) of given reveal patterns: exact for the sampler that follows them.

    Args:
        model: the sampler's step.
        x_RL: clean tokens.
        step_RL: step of each position.
        tau: MDLM times of the states before each step (more may follow).
        free_RL: what is generated, see ``few_step_nelbo``.
    """
    start: Any = None
    ell_RGM: Tensor | None = None
    redrawn_R = torch.zeros(len(x_RL), dtype=torch.float64, device=x_RL.device)
    for j in range(int(step_RL.max()) + 1):
        counted_RL = free_RL & (step_RL == j)
        # the first state's potentials are needed of every row, later ones where tokens appear
        row_A = torch.arange(len(x_RL), device=x_RL.device)
        if j > 0:
            row_A = counted_RL.any(-1).nonzero().squeeze(-1)
            if row_A.numel() == 0:
                continue
        hidden_AL = free_RL[row_A] & (step_RL[row_A] >= j)
        state_AL = torch.where(hidden_AL, model.mask_index, x_RL[row_A])
        scores = model.score(state_AL, x_RL[row_A], counted_RL[row_A], tau[j])
        potentials = in_double(scores.potentials)
        ell_AGM = model.structure.blocks.sums(scores.logp_RML.double())
        redrawn_R[row_A] -= model.structure.log_psi(potentials, ell_AGM)
        if ell_RGM is None:
            start, ell_RGM = potentials, ell_AGM.clone()
        else:
            ell_RGM[row_A] += ell_AGM
    assert ell_RGM is not None
    return FewStepNats(redrawn_R, -model.structure.log_psi(start, ell_RGM))


# --- comparisons ---------------------------------------------------------------------------------


def paired_difference(ours_B: Tensor, theirs_B: Tensor) -> Estimate:
    """Mean of ours - theirs over sequences, with its standard error."""
    difference_B = (ours_B - theirs_B).double()
    spread = difference_B.std().item() if len(difference_B) > 1 else math.inf
    return Estimate(difference_B.mean().item(), spread / math.sqrt(len(difference_B)))


def share_closed(factorised_B: Tensor, ours_B: Tensor, endless_B: Tensor) -> Estimate:
    """How much of the cost of factorising a J-step sampler is gone.

    (NELBO_J(M = 1) - NELBO_J(ours)) / (NELBO_J(M = 1) - NELBO_inf(M = 1)): 0 for a factorised
    step, 1 where few steps cost nothing. The standard error is that of a ratio of means over the
    same sequences, to first order.

    Args:
        factorised_B: NELBO of M = 1 at J of each sequence.
        ours_B: of the model at J.
        endless_B: NELBO of M = 1 for J -> infinity.
    """
    gain_B, cost_B = (factorised_B - ours_B).double(), (factorised_B - endless_B).double()
    share = gain_B.mean() / cost_B.mean()
    residual_B = (gain_B - share * cost_B) / cost_B.mean()
    spread = residual_B.std().item() if len(residual_B) > 1 else math.inf
    return Estimate(share.item(), spread / math.sqrt(len(residual_B)))

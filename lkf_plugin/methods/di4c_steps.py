"""The step of Di4C's sampler, a mixture over a latent in [0, 1) that is drawn anew in every step.

Its law is an integral over the latent, for which N drawn ones stand: the mean of -log of their mean
is above -log of the integral, so that what is bounded by it stays a bound, the closer the more.

Shape legend: R rows, N latents, L positions.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lkf_plugin.latents.sequence import Sequence, SequencePotentials
from lkf_plugin.latents.structure import Structure
from lkf_plugin.likelihood.step_model import StepScores

if TYPE_CHECKING:
    from lkf_plugin.methods.di4c import Di4C

DRAWN = 16  # latents that stand for the integral


class DrawnLatentSteps:
    """A ``StepModel`` over a Di4C student.

    Args:
        module: the student, in eval mode.
        count: N.
        seed: of the latents.
    """

    holds_latent = False

    def __init__(self, module: Di4C, count: int = DRAWN, seed: int = 0) -> None:
        self.module = module
        self.structure: Structure[Any] = Sequence(count)
        self.mask_index = module.mask_index
        self._generator = torch.Generator().manual_seed(seed)

    @torch.no_grad()
    def score(self, x_RL: Tensor, target_RL: Tensor, counted_RL: Tensor, tau: float) -> StepScores:
        rows, count = len(x_RL), self.structure.sequence_components
        z_RN = torch.rand(rows, count, generator=self._generator).to(x_RL.device)
        tau_R = torch.full((rows,), tau, dtype=torch.float32, device=x_RL.device)
        sigma_R = self.module.noise(tau_R)[0]
        logp_NRL = []
        for z_R in z_RN.unbind(1):  # one latent at a time: N times the rows need N times the memory
            logp_RLV = self.module.log_probs_under(x_RL, sigma_R, z_R)
            logp_RL = logp_RLV.gather(-1, target_RL[..., None]).squeeze(-1)
            logp_NRL.append(torch.where(counted_RL, logp_RL, 0.0))
        logw_RN = torch.full_like(z_RN, -math.log(count), dtype=logp_NRL[0].dtype)
        return StepScores(SequencePotentials(logw_RN), torch.stack(logp_NRL, dim=1))

"""The step of a host's own denoiser: MDLM without a latent-kernel network, on either host.

Shape legend: R rows, L positions, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lkf_plugin.latents.sequence import Sequence, SequencePotentials
from lkf_plugin.latents.structure import Structure
from lkf_plugin.likelihood.step_model import StepScores


class HostSteps:
    """A ``StepLawModel`` over a host's module with log-probabilities under SUBS: one component.

    Args:
        module: in eval mode, see ``host.contract``.
    """

    holds_latent = True

    def __init__(self, module: Any) -> None:
        self.module = module
        self.structure: Structure[Any] = Sequence(1)
        self.mask_index = module.mask_index

    def score(self, x_RL: Tensor, target_RL: Tensor, counted_RL: Tensor, tau: float) -> StepScores:
        potentials, logp_R1LV = self.law(x_RL, tau)
        logp_RL = logp_R1LV[:, 0].gather(-1, target_RL[..., None]).squeeze(-1)
        return StepScores(potentials, torch.where(counted_RL, logp_RL, 0.0)[:, None])

    @torch.no_grad()
    def law(
        self, x_RL: Tensor, tau: float, component_R: Tensor | None = None
    ) -> tuple[SequencePotentials, Tensor]:
        tau_R = torch.full((len(x_RL),), tau, dtype=torch.float32, device=x_RL.device)
        logp_RLV = self.module(x_RL, self.module.noise(tau_R)[0][:, None])
        return SequencePotentials(logp_RLV.new_zeros(len(x_RL), 1)), logp_RLV[:, None]

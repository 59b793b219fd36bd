"""The step of a trained network, as the likelihood of few-step samplers asks for it.

Shape legend: R rows, M components, L positions, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lkf_plugin.decode.network import DecodeNetwork
from lkf_plugin.likelihood.step_model import StepScores
from lkf_plugin.objective.components import HeadSettings, component_scores
from lkf_plugin.subs import subs_log_probs


class NetworkSteps:
    """A ``StepLawModel`` over a backbone of any structure; MDLM at M = 1.

    Args:
        network: the backbone (in eval mode) with its noise schedule.
        head: how the head is computed.
    """

    holds_latent = True

    def __init__(self, network: DecodeNetwork, head: HeadSettings | None = None) -> None:
        self.network = network
        self.head = head or HeadSettings("chunked")
        self.structure = network.structure
        self.mask_index = network.mask_index

    @torch.no_grad()
    def score(self, x_RL: Tensor, target_RL: Tensor, counted_RL: Tensor, tau: float) -> StepScores:
        sigma_R = self.network.sigma_at(tau, len(x_RL), x_RL.device)
        return StepScores(*component_scores(
            self.network.backbone, x_RL, target_RL, counted_RL, sigma_R, self.head
        ))  # fmt: skip

    @torch.no_grad()
    def law(
        self, x_RL: Tensor, tau: float, component_R: Tensor | None = None
    ) -> tuple[Any, Tensor]:
        backbone = self.network.backbone
        sigma_R = self.network.sigma_at(tau, len(x_RL), x_RL.device)
        state = backbone.encode(x_RL, sigma_R)
        row_R = None if component_R is None else torch.arange(len(x_RL), device=x_RL.device)
        components = backbone.num_components if component_R is None else 1
        logits = backbone.logits(backbone.branch(state, row_R, component_R))
        logp = subs_log_probs(logits, x_RL.repeat_interleave(components, 0), self.mask_index)
        return backbone.route(state), logp.unflatten(0, (len(x_RL), components))

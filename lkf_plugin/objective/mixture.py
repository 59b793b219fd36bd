"""loss=mixture: the clean-endpoint mixture likelihood, at M = 1 MDLM's loss bit for bit.

See ``likelihood`` for the formula and ``two_phase`` for its cheaper backward passes.

Shape legend: B sequences, L positions, M components. Unit: nats.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import torch
from torch import Tensor

from lkf_plugin.backbone.latent import LatentKernelBackbone
from lkf_plugin.corruption import log_move_chance, move_chance_from_sigma, nelbo_weight
from lkf_plugin.errors import UserError
from lkf_plugin.objective.components import ComponentScores, component_scores
from lkf_plugin.objective.diagnostics import latent_diagnostics
from lkf_plugin.objective.draws import Draws
from lkf_plugin.objective.likelihood import MixtureObjective, marginal_nll, mixture_objective
from lkf_plugin.objective.objective import (
    MDLM_HEAD,
    OBJECTIVES,
    Corruption,
    LossSettings,
    Objective,
    Value,
)
from lkf_plugin.objective.two_phase import BackwardPlan, two_phase_objective
from lkf_plugin.settings.fields import Choice, Count, Fraction, Share


class MixtureSettings(LossSettings):
    """Which (sequence, component) pairs get a backward pass."""

    backward: Annotated[str, Choice("dense", "two_phase", "drawn")]
    threshold: Fraction
    drawn: Count
    keep_above: Share


@OBJECTIVES.add("mixture")
class Mixture(Objective):
    """The mixture likelihood of x0 given x_t, weighted as MDLM's NELBO (paper, Eq. x0loss)."""

    Settings = MixtureSettings

    def __init__(self, settings: Mapping[str, Any], num_components: int) -> None:
        super().__init__(settings, num_components)
        self.plan = self._backward_plan()

    @classmethod
    def check(cls, loss: Any, network: Any, process: Any) -> None:
        """Gathered backward passes need a gathered head, a threshold below 1 / M."""
        M = network.num_components
        if M > 1 and loss.backward != "dense" and loss.token_head == MDLM_HEAD:
            raise UserError(
                f"loss.backward={loss.backward} gathers positions, which loss.token_head=mdlm does "
                "not: take loss.token_head=auto, or loss.backward=dense."
            )
        if loss.backward == "two_phase" and loss.threshold >= 1 / M:
            raise UserError(
                f"loss.threshold={loss.threshold} must lie in [0, 1 / M), so that at least one "
                "component of every sequence is trained."
            )

    @classmethod
    def is_mdlm(cls, num_components: int) -> bool:
        """At M = 1."""
        return num_components == 1

    def _backward_plan(self) -> BackwardPlan | None:
        """None keeps every pair in the graph, or MDLM's order of operations."""
        settings = self.settings
        if self.head.backend == "mdlm":
            return None
        if self.num_components == 1:
            return BackwardPlan()  # one component, one pass
        backward = settings.get("backward", "dense")
        if backward == "dense":
            return None
        if backward == "drawn":
            return BackwardPlan(drawn=settings["drawn"], keep_above=settings["keep_above"])
        return BackwardPlan(threshold=settings["threshold"])

    def corrupt(self, x0_BL: Tensor, attention_BL: Tensor, draws: Draws) -> Corruption:
        """Time, mask and weight as MDLM draws them, random numbers in its order."""
        t_B = draws.times(x0_BL)
        low = log_move_chance(draws.noise.sigma_min)
        if draws.change_of_variables:
            high = log_move_chance(draws.noise.sigma_max)
            sigma_B, move_B = t_B, torch.exp(low + t_B * (high - low))
            weight_B = -low.expand_as(t_B)
        else:
            sigma_B, dsigma_B = draws.noise(t_B)
            move_B = move_chance_from_sigma(sigma_B)
            weight_B = nelbo_weight(sigma_B, dsigma_B)
            if draws.importance_sampling:
                weight_B = -low.expand_as(t_B)
        xt_BL = draws.hide(x0_BL, move_B[:, None])
        counted_BL = (xt_BL == draws.mask_index) & (attention_BL > 0)
        network_sigma_B = draws.network_sigma(sigma_B)
        return Corruption(xt_BL, x0_BL, counted_BL, attention_BL, network_sigma_B, weight_B)

    def score(self, backbone: LatentKernelBackbone, corruption: Corruption) -> ComponentScores:
        """Scores of every component, each in the graph."""
        c = corruption
        return component_scores(backbone, c.xt_BL, c.target_BL, c.counted_BL, c.sigma_B, self.head)

    def loss(self, scores: ComponentScores, corruption: Corruption) -> Value:
        """The exact objective."""
        objective = mixture_objective(scores, corruption.weight_B, corruption.counted_BL)
        return self._value(scores, objective, corruption)

    def train(self, backbone: LatentKernelBackbone, corruption: Corruption) -> Value:
        """The same value; its gradient by the backward plan of ``loss.backward``."""
        if self.plan is None:
            return super().train(backbone, corruption)
        c = corruption
        seen = (c.xt_BL, c.target_BL, c.counted_BL, c.sigma_B)
        scores, objective = two_phase_objective(
            backbone, *seen, c.weight_B, self.head, self.plan
        )
        return self._value(scores, objective, corruption)

    def _value(
        self, scores: ComponentScores, objective: MixtureObjective, corruption: Corruption
    ) -> Value:
        tokens = corruption.attention_BL.sum()
        loss = objective.total / tokens
        nlls_BL = marginal_nll(scores, corruption.weight_B, corruption.counted_BL).detach()
        diagnostics: dict[str, Tensor] = {}
        if self.num_components > 1:
            diagnostics = latent_diagnostics(scores.logw_BM, objective.gamma_BM)
            diagnostics["mixture_nll"] = loss.detach()
        sequences = len(scores.logw_BM)
        penalty = self.penalty(scores.logw_BM) * (sequences / tokens) if diagnostics else 0.0
        return Value(loss, objective.nll_B, nlls_BL, penalty, diagnostics)

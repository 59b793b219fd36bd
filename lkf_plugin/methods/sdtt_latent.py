"""SDTT of a latent-kernel model: each component of the student learns from the teacher's own.

A chain of the teacher keeps its component, so what two of its steps begin from is a pair of a
masked text and a component. The component is drawn from the teacher's router on that text, both
steps are taken under it, and the student's component of the same number makes the prediction at
once; the student's router learns the teacher's. What is lessened is a divergence of the joint law
of component and tokens: the router's, KL(teacher || student), and the tokens' chosen distance.

A micro-batch costs a trunk and one branch, whatever M is, and so do the teacher's two steps each.

Shape legend: B sequences, M components, L positions, V vocabulary. Unit: nats.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from lkf_plugin.backbone import build_backbone
from lkf_plugin.backbone.trunk import TrunkState
from lkf_plugin.errors import UserError
from lkf_plugin.host.contract import Loss
from lkf_plugin.methods.lkf import LatentKernelMixin
from lkf_plugin.methods.method import METHODS, Method
from lkf_plugin.methods.sdtt import SDTT, Lesson, SDTTSettings, check_sdtt
from lkf_plugin.methods.sdtt_math import teacher_targets
from lkf_plugin.subs import subs_log_probs


class LatentSDTT(LatentKernelMixin, SDTT):  # type: ignore[misc, override]  # a host of both
    """Self-distillation through time, a component at a time.

    Everything but the training is the latent kernel's: validation, decoding policies, scores.
    """

    backbone: Any  # a LatentKernelBackbone
    _router_nats: Tensor | None = None

    def _build_backbone(self) -> nn.Module:
        return build_backbone(self.config.model, self.vocab_size, self.mask_index)

    def _start_from(self, source: str) -> None:
        """Nothing: the mixin starts from other networks, too."""

    def _loss(self, x0: Tensor, attention_mask: Tensor) -> Loss:
        if self.training:
            return self.distil(x0, attention_mask)
        self._latest = super()._loss(x0, attention_mask)
        return self._latest

    def lesson(self, xt: Tensor, t_B: Tensor, sigma_B: Tensor) -> Lesson:
        """Both sides under the component that the teacher draws for each text."""
        teacher: Any = self.teacher
        drawn: list[Tensor] = []  # component [B], log w [B, M]

        def log_probs(x: Tensor, time_B: Tensor) -> Tensor:
            state = teacher.encode(x, self._process_sigma(self.noise(time_B)[0]))
            if not drawn:  # the first step's text decides, for both
                logw_BM = teacher.route(state).logw_BK
                drawn.extend((self.draw(logw_BM.exp()), logw_BM))
            return self._under(teacher, state, x, drawn[0])

        with torch.no_grad():
            targets = teacher_targets(
                log_probs, xt, self.teacher_steps(t_B), self.move_chance, self.draw, self.mask_index
            )
        component_B, teacher_BM = drawn
        state = self.backbone.encode(xt, self._process_sigma(sigma_B))
        student_BM = self.backbone.route(state).logw_BK
        router_B = (teacher_BM.exp() * (teacher_BM - student_BM)).sum(-1)
        self._router_nats = router_B.detach().mean()
        return Lesson(self._under(self.backbone, state, xt, component_B), targets, router_B)

    def _under(self, network: Any, state: TrunkState, x: Tensor, component_B: Tensor) -> Tensor:
        """Log-probabilities [B, L, V] of each text's component."""
        rows_B = torch.arange(len(x), device=x.device)
        logits = network.logits(network.branch(state, rows_B, component_B))
        return subs_log_probs(logits, x, self.mask_index)

    def log_extras(self, prefix: str) -> Mapping[str, Any]:
        """In training also the router's divergence; in validation what the latent kernel logs."""
        if prefix != "train":
            return LatentKernelMixin.log_extras(self, prefix)
        extras = dict(SDTT.log_extras(self, prefix))
        return extras | ({} if self._router_nats is None else {"router_kl": self._router_nats})


def check_latent_sdtt(settings: Any) -> None:
    """A mixture with one latent per sequence, and SDTT's own rules.

    Raises:
        UserError: names the key.
    """
    check_sdtt(settings)
    model = settings.model
    if model.latent != "sequence":
        raise UserError(
            f"method=sdtt_lkf keeps one component per sequence: take model.latent=sequence, not "
            f"{model.latent}."
        )
    if model.num_components == 1:
        raise UserError(
            "method=sdtt_lkf needs components: take a model.num_components of 2 or more, or "
            "method=sdtt with a model of MDLM's kind."
        )


METHODS.add("sdtt_lkf")(
    Method(
        LatentSDTT,
        SDTTSettings,
        network="latent",
        likelihood="NELBO of the student's own marginal denoiser over all times; its teacher's is "
        "another, and few-step samples are not what it bounds",
        check=check_latent_sdtt,
        label="SDTT of LKF",
        color="#bcbd22",
    )
)

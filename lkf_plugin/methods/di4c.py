"""Di4C: a student that mixes factorised laws over a latent learns the dependence a product lacks.

Its first teacher is any MDLM (an SDTT student in the original); a later round's teacher is the
student, a mixture by then. The latent is drawn anew in every step of a chain.

Shape legend: B sequences, N latents, W = B N rows, L positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from lkf_plugin.corruption import move_chance_from_sigma
from lkf_plugin.host.contract import Loss
from lkf_plugin.methods.denoiser import Denoiser
from lkf_plugin.methods.di4c_math import Di4CTerms, di4c_terms, mean_over_latents
from lkf_plugin.methods.di4c_network import LATENT, add_latent, latent_logits
from lkf_plugin.methods.di4c_steps import DrawnLatentSteps
from lkf_plugin.methods.mdlm import MDLM
from lkf_plugin.methods.method import METHODS, Method
from lkf_plugin.methods.sdtt_math import reveal_weights
from lkf_plugin.methods.taught import Taught, TaughtSettings, check_rounds
from lkf_plugin.settings.fields import Count, Inside, Share
from lkf_plugin.subs import subs_log_probs
from lkf_plugin.train.metrics import Extra


class Di4C(Taught, MDLM):
    """Distillation through dimensional correlations.

    Likelihoods draw one latent per sequence and time, and bound those of the mixture.
    """

    backbone: Denoiser
    _first_has_latent = False
    _terms: Di4CTerms | None = None

    def _build_backbone(self) -> nn.Module:
        network: Any = super()._build_backbone()
        return add_latent(network, self.config.model.hidden_size)

    def _log_probs(self, network: Any, x: Tensor, sigma: Tensor, z: Tensor | None) -> Tensor:
        logits = latent_logits(network, x, self._process_sigma(sigma), z)
        return subs_log_probs(logits, x, self.mask_index)

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        """Log-probabilities [B, L, V] under a latent per sequence, drawn here."""
        return self.log_probs_under(x, sigma, torch.rand(len(x), device=x.device))

    def log_probs_under(self, x: Tensor, sigma_B: Tensor, z_B: Tensor) -> Tensor:
        """Log-probabilities [B, L, V] under given latents."""
        self.calls += 1
        return self._log_probs(self.backbone, x, sigma_B, z_B)

    # --- teacher -------------------------------------------------------------------------------

    def _read_teacher(self, teacher: nn.Module, state: dict[str, Tensor]) -> None:
        """A network with a latent, or one without."""
        missing, unexpected = teacher.load_state_dict(state, strict=False)
        self._first_has_latent = any(name.startswith(LATENT) for name in state)
        if unexpected or not all(name.startswith(LATENT) for name in missing):
            raise RuntimeError(f"missing {missing}, unexpected {unexpected}")
        if self._first_has_latent and missing:
            raise RuntimeError(f"missing {missing}")

    def _succeed(self) -> None:
        """The student's trained weights teach; it goes on."""
        self.teacher.load_state_dict(self.backbone.state_dict())

    def teacher_laws(self, xt_BL: Tensor, sigma_B: Tensor) -> tuple[Tensor, Tensor]:
        """The teacher at ``x_t``: its mean over latents [B, L, V], and under each, [W, L, V]."""
        count = self.settings.latents
        if self.round == 0 and not self._first_has_latent:
            self.teacher_calls += 1
            logp_BLV = self._log_probs(self.teacher, xt_BL, sigma_B, None)
            return logp_BLV, logp_BLV.repeat_interleave(count, 0)
        self.teacher_calls += count
        xt_WL, sigma_W = (v.repeat_interleave(count, 0) for v in (xt_BL, sigma_B))
        z_W = torch.rand(len(xt_WL), device=xt_BL.device)
        logp_WLV = self._log_probs(self.teacher, xt_WL, sigma_W, z_W)
        return mean_over_latents(logp_WLV.unflatten(0, (-1, count))), logp_WLV

    # --- loss ----------------------------------------------------------------------------------

    def _distillation_times(self, count: int, device: torch.device) -> Tensor:
        """Below delta with chance ``small_times``, else above it."""
        delta = self.settings.delta
        u_B, small_B = torch.rand(2, count, device=device)
        is_small_B = small_B < self.settings.small_times
        return torch.where(is_small_B, delta * u_B, delta + (1 - delta) * u_B).clamp_min(1e-5)

    def _loss(self, x0: Tensor, attention_mask: Tensor) -> Loss:
        if not self.training:
            return super()._loss(x0, attention_mask)
        settings, count, device = self.settings, self.settings.latents, x0.device
        t_B = self._distillation_times(len(x0), device)
        s_B = t_B - (t_B / 2).clamp_max(1 / settings.base_steps)
        sigma_B, later_B = (self.noise(time)[0] for time in (t_B, s_B))
        move_B, move_s_B = (move_chance_from_sigma(sigma) for sigma in (sigma_B, later_B))
        # what is not attended stays as it is: at a token that stands there all laws agree
        xt_BL = torch.where(attention_mask > 0, self.q_xt(x0, move_B[:, None]), x0)
        xt_WL, sigma_W, later_W, move_W, move_s_W = (
            v.repeat_interleave(count, 0) for v in (xt_BL, sigma_B, later_B, move_B, move_s_B)
        )
        with torch.no_grad():
            teacher_BLV, teacher_WLV = self.teacher_laws(xt_BL, sigma_B)
            weights = reveal_weights(teacher_WLV, move_W, move_s_W, self.mask_index)
            xs_WL = torch.where(xt_WL == self.mask_index, self.draw(weights), xt_WL)
            self.backbone.eval()
            z_W = torch.rand(len(xs_WL), device=device)
            later_WLV = self._log_probs(self.backbone, xs_WL, later_W, z_W)
            self.backbone.train()
            drawn_WL = self.draw(later_WLV.exp())
        self.calls += 2 * count
        z_W = torch.rand(len(xt_WL), device=device)
        student_WLV = self._log_probs(self.backbone, xt_WL, sigma_W, z_W)
        rows = (-1, count)
        terms = di4c_terms(
            x0,
            t_B,
            teacher_BLV,
            student_WLV.unflatten(0, rows),
            later_WLV.unflatten(0, rows),
            drawn_WL.unflatten(0, rows),
            settings.delta,
        )
        self._terms = Di4CTerms(*(term.detach() for term in terms))
        each_BL = (terms.distil + terms.data + terms.consistency)[:, None].expand(x0.shape)
        return Loss(terms.loss, each_BL / x0.shape[1], torch.ones_like(attention_mask))

    def log_extras(self, prefix: str) -> Mapping[str, Extra]:
        """In training also the terms of the latest batch, nats per sequence."""
        extras = dict(super().log_extras(prefix))
        if prefix == "train" and self._terms is not None:
            names = ("distil", "data", "consistency")
            extras |= {name: getattr(self._terms, name).mean() for name in names}
        return extras


class Di4CSettings(TaughtSettings):
    """Latents, and which times learn what."""

    latents: Count
    base_steps: Count
    delta: Inside
    small_times: Share


METHODS.add("di4c")(
    Method(
        Di4C,
        Di4CSettings,
        predictors=("ddpm",),
        step_model=DrawnLatentSteps,
        likelihood="bound on the NELBO of the student's mixture, one latent drawn per sequence "
        "and time; its teacher's is another, and few-step samples are not what it bounds",
        check=check_rounds,
        rows=lambda config: config.method.latents,
        label="Di4C",
        color="#7f7f7f",
    )
)

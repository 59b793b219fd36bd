"""MDLM as a baseline: the built-in host as it is, with counted calls and best-of-n reranking."""

from __future__ import annotations

from torch import Tensor

from lkf_plugin.corruption import nelbo_weight
from lkf_plugin.host.ancestral import PREDICTORS
from lkf_plugin.host.builtin import Diffusion
from lkf_plugin.likelihood.host_steps import HostSteps
from lkf_plugin.methods.baseline import Chains, DiffusionBaseline
from lkf_plugin.methods.method import METHODS, DrawingSettings, Method


class MDLM(DiffusionBaseline):
    """Losses are the host's bit for bit; draws are float64 with ``method.float64_draws``."""

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        """The host's, counted."""
        self.calls += 1
        return super().forward(x, sigma)

    def _forward_pass_diffusion(self, x0: Tensor) -> Tensor:
        return Diffusion._forward_pass_diffusion(self, x0)

    def token_nll(self, x0: Tensor, xt: Tensor, t_B: Tensor) -> Tensor:
        """-log p(x0) / t at masked positions; carried-over ones are zero under SUBS."""
        sigma_B, dsigma_B = self.noise(t_B)
        logp = self.forward(xt, sigma_B).gather(-1, x0[..., None]).squeeze(-1)
        return -logp * nelbo_weight(sigma_B, dsigma_B)[:, None]

    def _reveal(self, x: Tensor, p_x0: Tensor, stay_t: Tensor, stay_s: Tensor) -> Tensor:
        wide = p_x0.double() if self.settings.float64_draws else p_x0
        return super()._reveal(x, wide, stay_t, stay_s)

    def draw_chains(self, start_GL: Tensor, num_steps: int, eps: float) -> Chains:
        """MDLM's sampler by ``sampling.predictor``."""
        return Chains(self.reverse(start_GL, num_steps, eps))


METHODS.add("mdlm")(
    Method(
        MDLM,
        DrawingSettings,
        predictors=PREDICTORS,
        step_model=HostSteps,
        any_times=True,
        label="MDLM",
        color="#1f77b4",
    )
)

"""SEDD with absorbing noise: the network's output is a score, its loss the score entropy."""

from __future__ import annotations

from torch import Tensor

from lkf_plugin.methods.baseline import Chains, DiffusionBaseline
from lkf_plugin.methods.denoiser import by_rows, encode
from lkf_plugin.methods.method import METHODS, DrawingSettings, Method
from lkf_plugin.methods.sedd_math import (
    masked_log_scores,
    masked_score_entropy,
    pin_own_token,
)
from lkf_plugin.methods.sedd_sampler import PREDICTORS, run_chain


class SEDD(DiffusionBaseline):
    """Score entropy discrete diffusion.

    The loss holds the constant that makes it zero at the truth, so it is a NELBO like the others.
    """

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        """Log-scores [B, L, V], zero at the token that stands there."""
        self.calls += 1
        sigma_B = self._process_sigma(sigma)
        logits = self.backbone(x, sigma_B)
        return pin_own_token(masked_log_scores(logits, sigma_B[:, None].expand(x.shape)), x)

    def token_nll(self, x0: Tensor, xt: Tensor, t_B: Tensor) -> Tensor:
        """d sigma / dt times the score entropy of masked positions."""
        self.calls += 1
        sigma_B, dsigma_B = self.noise(t_B)
        rows = (xt == self.mask_index).nonzero(as_tuple=True)
        state = encode(self.backbone, xt, sigma_B)

        def entropy(logits_NV: Tensor, sigma_N: Tensor, x0_N: Tensor) -> Tensor:
            log_s = masked_log_scores(logits_NV, sigma_N)
            return masked_score_entropy(log_s, sigma_N, x0_N, self.mask_index)

        columns = (sigma_B[rows[0]], x0[rows])
        network, chunk = self.backbone, self.config.loss.chunk_rows
        entropy_N = by_rows(entropy, network, state, rows, columns, chunk)
        weighted_N = entropy_N * dsigma_B[rows[0]]
        return weighted_N.new_zeros(x0.shape).index_put(rows, weighted_N)

    def draw_chains(self, start_GL: Tensor, num_steps: int, eps: float) -> Chains:
        """``sampling.predictor`` analytic or euler; one call more for the denoiser."""
        sampling = self.config.sampling
        x_GL = run_chain(
            self.forward,
            self.noise,
            start_GL,
            num_steps,
            eps,
            sampling.predictor,
            self.mask_index,
            self.draw,
            sampling.noise_removal,
        )
        return Chains(x_GL)


METHODS.add("sedd")(
    Method(
        SEDD,
        DrawingSettings,
        process={
            "parameterization": "sedd",
            "diffusion": "absorbing_state",
            "time_conditioning": True,
        },
        predictors=PREDICTORS,
        by_chunks=lambda config: True,
        label="SEDD",
        color="#2ca02c",
    )
)

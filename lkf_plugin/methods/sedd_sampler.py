"""SEDD's reverse samplers as a function of a score network.

Shape legend: B sequences, L positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from lkf_plugin.methods.sedd_math import analytic_weights, euler_weights

PREDICTORS = ("analytic", "euler")

Draw = Callable[[Tensor], Tensor]
LogScore = Callable[[Tensor, Tensor], Tensor]


def run_chain(
    log_score: LogScore,
    noise: nn.Module,
    x_BL: Tensor,
    num_steps: int,
    eps: float,
    predictor: str,
    mask_index: int,
    draw: Draw,
    denoise: bool = True,
) -> Tensor:
    """``num_steps`` steps from time 1 to ``eps``, then one denoising call, [B, L].

    Args:
        log_score: (x [B, L], sigma [B]) -> log s [B, L, V].
        noise: t -> (sigma, d sigma / dt).
        x_BL: start, all masks or a prompt.
        predictor: ``analytic`` (Tweedie) or ``euler``.
        draw: one token a row from unnormalised weights.
        denoise: the last call, in which the mask cannot be drawn.

    Source: SEDD, sampling.get_pc_sampler.
    """
    ones_B = torch.ones(x_BL.shape[0], device=x_BL.device)
    times = torch.linspace(1, eps, num_steps + 1, device=x_BL.device)
    dt = (1 - eps) / num_steps
    for t in times[:-1]:
        sigma_B, dsigma_B = noise(t * ones_B)
        log_s = log_score(x_BL, sigma_B)
        if predictor == "analytic":
            drop_B = sigma_B - noise((t - dt) * ones_B)[0]
            weights = analytic_weights(log_s, x_BL, drop_B, mask_index)
        else:
            weights = euler_weights(log_s, x_BL, dt * dsigma_B, mask_index)
        x_BL = draw(weights)
    if denoise:
        sigma_B = noise(times[-1] * ones_B)[0]
        weights = analytic_weights(log_score(x_BL, sigma_B), x_BL, sigma_B, mask_index)
        weights[..., mask_index] = 0
        x_BL = draw(weights)
    return x_BL

"""DUO's ancestral sampler as a function of a denoiser.

Shape legend: B sequences, L positions, K vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from lkf_plugin.methods.duo_math import posterior

LAST_PASSES = ("greedy", "ancestral", "none")

Draw = Callable[[Tensor], Tensor]
LogProbs = Callable[[Tensor, Tensor], Tensor]


def run_chain(
    log_probs: LogProbs,
    noise: nn.Module,
    x_BL: Tensor,
    num_steps: int,
    eps: float,
    last_pass: str,
    draw: Draw,
) -> Tensor:
    """``num_steps`` steps from time 1 to ``eps`` and the last pass, [B, L].

    Args:
        log_probs: (x [B, L], sigma [B]) -> log p(clean token) [B, L, K].
        noise: t -> (sigma, d sigma / dt); alpha = exp(-sigma).
        x_BL: uniform ids.
        last_pass: ``greedy`` takes the likeliest clean token everywhere, ``ancestral`` makes one
            step to alpha = 1, ``none`` stops. Either costs one more network call, and unlike
            MDLM's it may change every position.
        draw: one token a row from weights.

    Source: DUO, trainer_base.Diffusion.generate_samples.
    """
    ones_B = torch.ones(x_BL.shape[0], device=x_BL.device)
    times = torch.linspace(1, eps, num_steps + 1, device=x_BL.device)
    dt = (1 - eps) / num_steps

    def step_to(x_BL: Tensor, sigma_B: Tensor, alpha_s_B: Tensor) -> Tensor:
        p_x0 = log_probs(x_BL, sigma_B).double().exp()
        return draw(posterior(p_x0, x_BL, alpha_s_B, torch.exp(-sigma_B)))

    for t in times[:-1]:
        sigma_B = noise(t * ones_B)[0]
        alpha_s_B = torch.exp(-noise((t - dt) * ones_B)[0])
        x_BL = step_to(x_BL, sigma_B, alpha_s_B)
    sigma_B = noise(times[-1] * ones_B)[0]
    if last_pass == "greedy":
        return log_probs(x_BL, sigma_B).argmax(-1)
    if last_pass == "ancestral":
        return step_to(x_BL, sigma_B, ones_B)
    return x_BL

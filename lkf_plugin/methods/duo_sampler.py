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
        draw: one token per row from weights.

    Source: DUO, trainer_base.Diffusion.generate_samples.
    """
    start_B, steps_B = torch.ones(len(x_BL)), torch.full((len(x_BL),), num_steps)
    return run_chains(log_probs, noise, x_BL, start_B, steps_B, eps, last_pass, draw)


def run_chains(
    log_probs: LogProbs,
    noise: nn.Module,
    x_BL: Tensor,
    start_B: Tensor,
    steps_B: Tensor,
    eps: float,
    last_pass: str,
    draw: Draw,
) -> Tensor:
    """``run_chain`` from times ``start_B`` of their own, by ``steps_B`` steps each.

    The network is asked for the chains alone that are not at ``eps`` yet, and for all at the last
    pass.
    """
    device, most = x_BL.device, int(steps_B.max())
    times_BN = torch.full((len(x_BL), most + 1), eps, device=device)
    for b, (start, count) in enumerate(zip(start_B.tolist(), steps_B.tolist(), strict=True)):
        times_BN[b, : count + 1] = torch.linspace(start, eps, count + 1, device=device)
    dt_B = ((start_B.double() - eps) / steps_B).float().to(device)
    steps_B = steps_B.to(device)

    def step_to(x_BL: Tensor, sigma_B: Tensor, alpha_s_B: Tensor) -> Tensor:
        p_x0 = log_probs(x_BL, sigma_B).double().exp()
        return draw(posterior(p_x0, x_BL, alpha_s_B, torch.exp(-sigma_B)))

    x_BL = x_BL.clone()
    for i in range(most):
        rows = (steps_B > i).nonzero().squeeze(-1)
        t = times_BN[rows, i]
        alpha_s = torch.exp(-noise(t - dt_B[rows])[0])
        x_BL[rows] = step_to(x_BL[rows], noise(t)[0], alpha_s)
    sigma_B = noise(times_BN[:, -1])[0]
    if last_pass == "greedy":
        return log_probs(x_BL, sigma_B).argmax(-1)
    if last_pass == "ancestral":
        return step_to(x_BL, sigma_B, torch.ones_like(sigma_B))
    return x_BL

"""ReDi's mathematics: noise and text tied by a coupling, whose conditional total correlation falls.

A coupling is a law of pairs: noise x_T from the prior, text x_0 from a model that started there. A
model trained on the bridge between both ends of a pair makes the next coupling (a rectification).
The factorised step of a model is off by the total correlation that the coupling leaves between
positions given the noise, and a rectification with exact factorised steps lowers it.

A perturbed coupling begins between both ends: a text of the corpus keeps a share g of its
positions, the rest is noise, and the model goes on from time 1 - g.

From samples, TC(x_0 | x_T) is what ``information.sample_tc`` estimates for one noise. ReDi's own
metric for texts takes each of its 8 samples per noise as unlike the others, and may be negative.

Shape legend: B sequences, L positions, K ids. Unit: nats.
Source: Yoo et al. 2025 (ReDi: Rectified Discrete Flow), and Ugness/ReDi_discrete, Rectification.
"""

from __future__ import annotations

import torch
from torch import Tensor


def bridge(
    x0_BL: Tensor, xT_BL: Tensor, alpha_B: Tensor, u_BL: Tensor, clean_B: Tensor | None = None
) -> Tensor:
    """x_t of a pair: the text where the uniform ``u`` is at most alpha, else the pair's start.

    Args:
        x0_BL, xT_BL: both ends.
        alpha_B: signal at t, at least ``clean_B`` but for the least noise at t = 0.
        u_BL: uniforms.
        clean_B: share g of the start that was text already: u counts from there.
    """
    if clean_B is not None:
        u_BL = clean_B[:, None] + u_BL * (1 - clean_B[:, None])
    return torch.where(u_BL <= alpha_B[:, None], x0_BL, xT_BL)


def perturb(text_BL: Tensor, noise_BL: Tensor, u_BL: Tensor, clean_B: Tensor) -> Tensor:
    """A start that keeps each token of a text with chance g.

    Source: ReDi, main.generate_reflow_dataset_with_perturbed_rect.
    """
    return torch.where(clean_B[:, None] > u_BL, text_BL, noise_BL)


def chain_steps(clean_B: Tensor, num_steps: int) -> Tensor:
    """Steps of the chain from a start that is clean to a share g, of ``num_steps`` from noise."""
    return (num_steps * (1 - clean_B.double())).long().clamp_min(1)


def simple_loss(logp_BLK: Tensor, x0_BL: Tensor) -> Tensor:
    """Cross-entropy of the text at every position, [B, L]."""
    return -logp_BLK.gather(-1, x0_BL[..., None]).squeeze(-1)

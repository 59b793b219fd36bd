"""ReDi's mathematics: noise and text tied by a coupling, whose conditional total correlation falls.

A coupling is a law of pairs: noise x_T from the prior, text x_0 from a model that started there. A
model trained on the bridge between both ends of a pair makes the next coupling (a rectification).
The factorised step of a model is off by the total correlation that the coupling leaves between
positions given the noise, and a rectification with exact factorised steps lowers it.

From samples, TC(x_0 | x_T) is what ``information.sample_tc`` estimates for one noise. ReDi's own
metric for texts takes each of its 8 samples per noise as unlike the others, and may be negative.

Shape legend: B sequences, L positions, K ids. Unit: nats.
Source: Yoo et al. 2025 (ReDi: Rectified Discrete Flow), and Ugness/ReDi_discrete, Rectification.
"""

from __future__ import annotations

import torch
from torch import Tensor


def bridge(x0_BL: Tensor, xT_BL: Tensor, alpha_B: Tensor, u_BL: Tensor) -> Tensor:
    """x_t of a pair: the text where the uniform ``u`` is at most alpha, else the pair's noise."""
    return torch.where(u_BL <= alpha_B[:, None], x0_BL, xT_BL)


def simple_loss(logp_BLK: Tensor, x0_BL: Tensor) -> Tensor:
    """Cross-entropy of the text at every position, [B, L]."""
    return -logp_BLK.gather(-1, x0_BL[..., None]).squeeze(-1)

"""SEDD with absorbing noise, as functions of tensors.

``log_score`` holds log s_j, the network's estimate of log p(x with j here) / p(x): for a masked
position, of p(clean token j) r with r = 1 / (e^sigma - 1). The mask may be any id.

Shape legend: B sequences, L positions, N rows = (sequence, position) pairs, V vocabulary with the
mask. Nats throughout.
Source: Lou et al. 2024 (SEDD): score entropy, Eq. 5 and 8; analytic sampler, Theorem 4.2.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lkf_plugin.subs import at_least_float32


def masked_log_scores(logits_NV: Tensor, sigma_N: Tensor) -> Tensor:
    """log s of masked rows from the network's output: f - log(e^sigma - 1) - log(V - 1).

    So a network that says f_j = log((V - 1) p_j) has s_j = r p_j.

    Args:
        logits_NV: [..., V].
        sigma_N: noise of each row, positive; its shape is that of the logits without V.
    """
    logits_NV = at_least_float32(logits_NV)
    offset_N = torch.log(torch.expm1(sigma_N)).to(logits_NV) + math.log(logits_NV.shape[-1] - 1)
    return logits_NV - offset_N[..., None]


def pin_own_token(log_score_BLV: Tensor, xt_BL: Tensor) -> Tensor:
    """Sets log s of the token that stands there to zero, which is exact."""
    return log_score_BLV.scatter(-1, xt_BL[..., None], 0.0)


def masked_score_entropy(
    log_score_NV: Tensor, sigma_N: Tensor, x0_N: Tensor, mask_index: int
) -> Tensor:
    """Score entropy of masked rows, [N], with the constant that makes it zero at the truth.

    sum over j != mask of s_j, minus r log s_{x0}, plus r (log r - 1).
    """
    total_N = log_score_NV.exp().index_fill(-1, _index(log_score_NV, mask_index), 0.0).sum(-1)
    ratio_N = 1 / torch.expm1(sigma_N).to(log_score_NV)
    picked_N = log_score_NV.gather(-1, x0_N[..., None]).squeeze(-1)
    return total_N - ratio_N * picked_N + ratio_N * (ratio_N.log() - 1)


def staggered_score(score_BLV: Tensor, dsigma_B: Tensor, mask_index: int) -> Tensor:
    """Scores of the law that is ``dsigma`` less noisy, still at the present tokens, [B, L, V]."""
    growth_B11 = dsigma_B.exp()[:, None, None]
    staggered = score_BLV * growth_B11
    rest_BL1 = (1 - growth_B11) * score_BLV.sum(-1, keepdim=True)
    staggered[..., mask_index] += rest_BL1.squeeze(-1)
    return staggered


def transition_to(xt_BL: Tensor, dsigma_B: Tensor, mask_index: int, vocab_size: int) -> Tensor:
    """Chance that each token j turns into the present token in ``dsigma``, [B, L, V]."""
    kept_B1 = torch.exp(-dsigma_B)[:, None]
    shape = (*xt_BL.shape, vocab_size)
    stays = torch.zeros(shape, dtype=kept_B1.dtype, device=xt_BL.device)
    stays.scatter_(-1, xt_BL[..., None], kept_B1.expand(xt_BL.shape)[..., None])
    lost_BL = torch.where(xt_BL == mask_index, 1 - kept_B1, 0.0)
    return stays + lost_BL[..., None]


def analytic_weights(
    log_score_BLV: Tensor, xt_BL: Tensor, dsigma_B: Tensor, mask_index: int
) -> Tensor:
    """Unnormalised law of the tokens ``dsigma`` earlier: Tweedie's reverse step, [B, L, V]."""
    staggered = staggered_score(log_score_BLV.exp(), dsigma_B, mask_index)
    return staggered * transition_to(xt_BL, dsigma_B, mask_index, log_score_BLV.shape[-1])


def reverse_rate(log_score_BLV: Tensor, xt_BL: Tensor, mask_index: int) -> Tensor:
    """Rates out of the present tokens in units of d sigma, [B, L, V]; each row sums to zero.

    A mask turns into j at rate s_j; everything else stays.
    """
    masked_BL1 = (xt_BL == mask_index)[..., None]
    rate = torch.where(masked_BL1, log_score_BLV.exp(), 0.0)
    rate[..., mask_index] = 0.0
    return rate.scatter_add(-1, xt_BL[..., None], -rate.sum(-1, keepdim=True))


def euler_weights(log_score_BLV: Tensor, xt_BL: Tensor, step_B: Tensor, mask_index: int) -> Tensor:
    """One Euler step, ``step`` = dt d sigma / dt: onehot + step rate, [B, L, V].

    A long step gives the mask a negative weight, which draws it never.
    """
    rate = reverse_rate(log_score_BLV, xt_BL, mask_index) * step_B[:, None, None]
    return rate.scatter_add(-1, xt_BL[..., None], torch.ones_like(rate[..., :1]))


def _index(like: Tensor, mask_index: int) -> Tensor:
    return torch.tensor([mask_index], device=like.device)

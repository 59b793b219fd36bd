"""The table networks with which the golden arrays were made, and what they are compared by."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from lkf_plugin.methods.sedd_math import masked_score_entropy
from lkf_plugin.subs import subs_log_probs


def sedd_table(W: Tensor, mask_index: int):
    """log s = onehot W + mean(onehot) W - log(e^sigma - 1) - log(V - 1), own token zero."""

    def log_score(x_BL: Tensor, sigma_B: Tensor) -> Tensor:
        onehot = F.one_hot(x_BL, W.shape[0]).to(W)
        raw = onehot @ W + onehot.mean(1, keepdim=True) @ W
        raw = raw - sigma_B.expm1().log()[:, None, None] - math.log(W.shape[0] - 1)
        return raw.scatter(-1, x_BL[..., None], 0.0)

    return log_score


def duo_table(W: Tensor):
    """log softmax of onehot W + mean(onehot) W^T - sigma."""

    def log_probs(x_BL: Tensor, sigma_B: Tensor) -> Tensor:
        onehot = F.one_hot(x_BL, W.shape[0]).to(W)
        raw = onehot @ W + onehot.mean(1, keepdim=True) @ W.T
        return torch.log_softmax(raw - sigma_B[:, None, None], dim=-1)

    return log_probs


def subs_table(W: Tensor, mask_index: int, scale: float = 1.0):
    """SUBS over ``scale`` times (onehot W + mean(onehot) W^T); the time is not told."""

    def log_probs(x_BL: Tensor, t_B: Tensor) -> Tensor:
        onehot = F.one_hot(x_BL, W.shape[0]).to(W)
        raw = onehot @ W + onehot.mean(1, keepdim=True) @ W.T
        return subs_log_probs(scale * raw, x_BL, mask_index)

    return log_probs


def score_entropy(
    log_score_BLV: Tensor, sigma_B: Tensor, xt_BL: Tensor, x0_BL: Tensor, mask_index: int
) -> Tensor:
    """Score entropy of every position, [B, L]; revealed positions have none."""
    sigma_BL = sigma_B[:, None].expand(xt_BL.shape)
    entropy_BL = masked_score_entropy(log_score_BLV, sigma_BL, x0_BL, mask_index)
    return torch.where(xt_BL == mask_index, entropy_BL, 0.0)

"""DUO's uniform-state diffusion, as functions of tensors.

A token keeps its value with chance alpha and is else redrawn from all K ids. Everything here goes
by c = K alpha / (1 - alpha): the odds of a token's own column against any other.

Shape legend: B sequences, L positions, N rows = (sequence, position) pairs, K vocabulary.
Source: Sahoo et al. 2025 (The Diffusion Duality): NELBO, Eq. 9; posterior, Eq. 6.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lkf_plugin.subs import at_least_float32


def diffuse(x0_BL: Tensor, alpha_B: Tensor, keep_u_BL: Tensor, other_BL: Tensor) -> Tensor:
    """Noisy tokens: ``other`` (uniform ids) where the uniform ``keep_u`` is below 1 - alpha."""
    return torch.where(keep_u_BL < (1 - alpha_B)[:, None], other_BL, x0_BL)


def nelbo_integrand(
    logp_NK: Tensor, xt_N: Tensor, x0_N: Tensor, alpha_N: Tensor, dalpha_N: Tensor
) -> Tensor:
    """Integrand of the NELBO over time, [N], in nats; never negative, zero at the truth.

    With u_j = log(1 + c p_j) the bound's sum over the vocabulary is one sum of u and two of its
    entries; constants of the size K log(1 - alpha) cancel before anything is added up, so float32
    is enough at K = 30,522.

    Args:
        logp_NK: log-probabilities of the clean token.
        xt_N, x0_N: noisy and clean token.
        alpha_N, dalpha_N: signal and its derivative in time (negative), each in (0, 1) and < 0.
    """
    logp_NK = at_least_float32(logp_NK)
    alpha_N, dalpha_N = alpha_N.to(logp_NK), dalpha_N.to(logp_NK)
    K = logp_NK.shape[-1]
    c_N = K * alpha_N / (1 - alpha_N)
    u_NK = torch.log1p(c_N[..., None] * logp_NK.exp())
    total_N = u_NK.sum(-1)
    u_t_N = u_NK.gather(-1, xt_N[..., None]).squeeze(-1)
    u_0_N = u_NK.gather(-1, x0_N[..., None]).squeeze(-1)
    top_N = torch.log1p(c_N)
    same_N = xt_N == x0_N
    sum_same_N = (K * u_t_N - total_N - (K - 1) * top_N) / (1 + c_N)
    sum_moved_N = (K - 1) * u_t_N - total_N + u_0_N + (1 + c_N) * (u_t_N - u_0_N + top_N)
    divergence_N = torch.where(same_N, sum_same_N, sum_moved_N)
    truth_N = torch.where(same_N, 1 / (1 + c_N), torch.ones_like(c_N))
    gap_N = truth_N - torch.exp(-u_t_N)
    return dalpha_N / alpha_N * (gap_N / (1 - alpha_N) - divergence_N / K)


def posterior(p_x0_BLK: Tensor, xt_BL: Tensor, alpha_s_B: Tensor, alpha_t_B: Tensor) -> Tensor:
    """q(x_s | x_t, p): law of the tokens at the less noisy time s, [B, L, K]; rows sum to one.

    Bayes' rule with the clean token replaced by its law ``p_x0``.
    """
    K = p_x0_BLK.shape[-1]
    alpha_s, alpha_t = (a[:, None, None].to(p_x0_BLK) for a in (alpha_s_B, alpha_t_B))
    ratio = alpha_t / alpha_s
    own = p_x0_BLK.gather(-1, xt_BL[..., None])
    base = (alpha_s - alpha_t) * p_x0_BLK + (1 - ratio) * (1 - alpha_s) / K
    bonus = K * alpha_t * own + ratio - alpha_t
    return base.scatter_add(-1, xt_BL[..., None], bonus) / (K * alpha_t * own + 1 - alpha_t)

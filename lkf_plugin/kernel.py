"""The mixture kernel: Psi(x_s | x_t) = sum_k w_k prod_i P_i^k(x_s^i | x_t).

Pure tensor functions, in whatever floating dtype they are given (tests use float64).

Shape legend: B sequences, M components, L positions, V vocabulary.
``logw_BM`` are normalised log router weights; ``ell_BM`` is the sum over the counted positions of
one component's token log-probabilities. Everything is in nats.
"""

from __future__ import annotations

import torch
from torch import Tensor


def log_mixture(logw_BM: Tensor, ell_BM: Tensor) -> Tensor:
    """log Psi of each sequence, shape [B] (paper, Eq. nll: logsumexp over the latent).

    Two components that each fix both of two tokens, a half each: what they agree on has
    probability 1/2, and a mixture of their words none, which no product of marginals can say.

    >>> import torch
    >>> logw_BM = torch.tensor([0.5, 0.5]).log().expand(2, 2)
    >>> logp_BML = torch.tensor([[[1.0, 1.0], [0.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]]).log()
    >>> log_mixture(logw_BM, logp_BML.sum(-1)).exp()
    tensor([0.5000, 0.0000])
    >>> marginal_token_log_probs(logw_BM, logp_BML).sum(-1).exp()  # one token at a time
    tensor([0.2500, 0.2500])
    """
    return torch.logsumexp(logw_BM + ell_BM, dim=-1)


def responsibilities(logw_BM: Tensor, ell_BM: Tensor) -> Tensor:
    """Posterior of the latent given the target, gamma_BM; rows sum to one.

    The gradient of ``-log_mixture`` is ``-sum_k gamma_k grad(log w_k + ell_k)``.
    """
    return torch.softmax(logw_BM + ell_BM, dim=-1)


def marginal_token_log_probs(logw_BM: Tensor, logp_BML: Tensor) -> Tensor:
    """log sum_k w_k P_i^k(x^i) of given tokens, shape [B, L] (paper, Prop. melbo)."""
    return torch.logsumexp(logw_BM[:, :, None] + logp_BML, dim=1)


def marginal_log_probs(logw_BM: Tensor, logp_BMLV: Tensor) -> Tensor:
    """The marginal denoiser log sum_k w_k P_i^k(.), shape [B, L, V] (paper, Prop. melbo)."""
    return torch.logsumexp(logw_BM[:, :, None, None] + logp_BMLV, dim=1)


def entropy(log_prob: Tensor, dim: int = -1) -> Tensor:
    """Entropy of normalised log-probabilities along ``dim``; 0 log 0 = 0."""
    prob = log_prob.exp()
    return -torch.where(prob > 0, prob * log_prob, torch.zeros_like(prob)).sum(dim)


def batch_router_entropy(logw_BM: Tensor) -> Tensor:
    """H(E_b[w]): entropy of the batch-averaged router, a scalar."""
    mean_w_M = logw_BM.exp().mean(0)
    # an underflowed weight must not turn the gradient into 0 * inf
    return entropy(mean_w_M.clamp_min(torch.finfo(mean_w_M.dtype).tiny).log(), dim=0)

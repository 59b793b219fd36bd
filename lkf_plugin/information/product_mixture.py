"""Mixtures of product distributions on listed outcomes: their law, their EM fit, their distances.

Shape legend: X outcomes (rows), M components, L positions, V values. Unit: nats.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class ProductMixture(NamedTuple):
    """Q = sum_k w_k prod_i Q_k^i.

    Attributes:
        logw_M: normalised log weights.
        logq_MLV: normalised log-probabilities of each position.
    """

    logw_M: Tensor
    logq_MLV: Tensor


def random_mixture(
    components: int, length: int, values: int, generator: torch.Generator, sharp: float = 1.0
) -> ProductMixture:
    """Gaussian logits times ``sharp``, float64."""
    shape = (components, length, values)
    logits_MLV = sharp * torch.randn(shape, generator=generator, dtype=torch.float64)
    logits_M = torch.randn(components, generator=generator, dtype=torch.float64)
    return ProductMixture(torch.log_softmax(logits_M, -1), torch.log_softmax(logits_MLV, -1))


def all_strings(length: int, values: int) -> Tensor:
    """All V^L strings, [X, L], the first position slowest."""
    digits = torch.arange(values)
    return torch.cartesian_prod(*[digits] * length).reshape(-1, length)


def component_log_probs(logq_MLV: Tensor, x_XL: Tensor) -> Tensor:
    """log Q_k(x) of each row, [X, M]."""
    index_MLX = x_XL.T[None].expand(logq_MLV.shape[0], -1, -1)
    return logq_MLV.gather(-1, index_MLX).sum(1).T


def log_prob(mixture: ProductMixture, x_XL: Tensor) -> Tensor:
    """log Q(x) of each row, [X]."""
    return torch.logsumexp(mixture.logw_M + component_log_probs(mixture.logq_MLV, x_XL), dim=-1)


def fit(
    x_XL: Tensor,
    chance_X: Tensor,
    start: ProductMixture,
    rounds: int,
    smoothing: float = 0.0,
) -> ProductMixture:
    """Maximum likelihood by EM: a local minimum of KL(P || Q) near ``start``.

    Args:
        x_XL: outcomes.
        chance_X: their probabilities P, which sum to one.
        start: where to begin; its shape says M and V.
        rounds: EM rounds.
        smoothing: probability mass added to every cell, so that unseen values stay possible.
    """
    values = start.logq_MLV.shape[-1]
    onehot_XLV = torch.nn.functional.one_hot(x_XL, values).double()
    for _ in range(rounds):
        joint_XM = start.logw_M + component_log_probs(start.logq_MLV, x_XL)
        # a value that a component has excluded stays excluded, even where all exclude it
        post_XM = torch.softmax(joint_XM.clamp_min(-1e4), dim=-1) * chance_X[:, None]
        cells_MLV = torch.einsum("xm,xlv->mlv", post_XM, onehot_XLV) + smoothing
        start = ProductMixture(
            (post_XM.sum(0) / post_XM.sum()).log(),
            (cells_MLV / cells_MLV.sum(-1, keepdim=True).clamp_min(1e-300)).log(),
        )
        # a component without mass is left with log 0 rows, which no outcome can reach
        start = ProductMixture(start.logw_M.clamp_min(-1e4), start.logq_MLV.clamp_min(-1e4))
    return start


def divergence(chance_X: Tensor, logq_X: Tensor) -> Tensor:
    """KL(P || Q) over listed outcomes."""
    return (torch.xlogy(chance_X, chance_X) - chance_X * logq_X).nan_to_num(nan=0.0).sum()


def total_variation(chance_X: Tensor, logq_X: Tensor) -> Tensor:
    """TV(P, Q) over all outcomes."""
    return 0.5 * (chance_X - logq_X.exp()).abs().sum()

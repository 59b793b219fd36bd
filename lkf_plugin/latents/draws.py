r"""Draws of latents from given uniforms, and the draws that spare branch passes in training.

The gradient of -log Psi is linear in the responsibilities gamma, so that any random weights with
E c_{gk} = gamma_{gk} give it without bias, however the groups depend on one another. What a step
pays for is the number of distinct components of a sequence that have weight anywhere:

* ``drawn_weights``: each group draws S components from its own gamma_g. With the *same* uniforms
  for all groups of a sequence, groups that agree draw the same component. Where every position is
  paid for by itself, uniforms of their own cost nothing and have less variance (``apart``).
* ``subset_weights``: S components are drawn for the whole sequence, with chances q_k, and weighed
  gamma_{gk} / q_k (Horvitz and Thompson): never more than S passes, whatever the groups say.
  q_k ~ (sum_g gamma_{gk}^2)^{1/2}, at most 1, has the least variance of the weights.

Shape legend: B sequences, G groups, M components, S draws.
"""

from __future__ import annotations

import torch
from torch import Tensor


def inverse_cdf(weight_BM: Tensor, u_B: Tensor) -> Tensor:
    """The component whose share of the unit interval holds u, int64 [B].

    Args:
        weight_BM: weights, not necessarily normalised; sums are taken in float64.
        u_B: float64 uniforms in (0, 1).
    """
    cdf_BM = weight_BM.double().cumsum(-1)
    hit_B1 = torch.searchsorted(cdf_BM, u_B[:, None] * cdf_BM[:, -1:], right=True)
    return hit_B1.squeeze(-1).clamp_max(weight_BM.shape[-1] - 1)


def systematic(u_B: Tensor, draws: int) -> Tensor:
    """S equally spaced uniforms for each given one, (u + s) / S: each is uniform, [..., S].

    A component of weight gamma is then drawn floor(S gamma) or ceil(S gamma) times.
    """
    return (u_B[..., None] + torch.arange(draws, device=u_B.device)) / draws


def drawn_weights(gamma_BGM: Tensor, u_BGS: Tensor, keep_above: float = 1.0) -> Tensor:
    """Weights with mean gamma: counts of S draws per group.

    Args:
        gamma_BGM: responsibilities.
        u_BGS: float64 uniforms, one per draw; [B, 1, S] are used by all groups of a sequence.
        keep_above: components above it keep their weight gamma, and the draws are from the rest;
            1 keeps none.
    """
    kept_BGM = torch.where(gamma_BGM > keep_above, gamma_BGM, 0.0)
    rest_BGM = (gamma_BGM - kept_BGM).double()
    cdf_BGM = rest_BGM.cumsum(-1)
    mass_BG1 = cdf_BGM[..., -1:]
    point_BGS = (u_BGS * mass_BG1).contiguous()
    picks_BGS = torch.searchsorted(cdf_BGM, point_BGS, right=True)
    picks_BGS = picks_BGS.clamp_max(gamma_BGM.shape[-1] - 1)  # where there is no rest
    count_BGM = torch.zeros_like(rest_BGM).scatter_add_(-1, picks_BGS, torch.ones_like(point_BGS))
    return kept_BGM + (count_BGM * mass_BG1 / u_BGS.shape[-1]).to(gamma_BGM.dtype)


def subset_weights(gamma_BGM: Tensor, u_B: Tensor, passes: int) -> Tensor:
    """Weights with mean gamma on at most ``passes`` components per sequence.

    Systematic sampling with unequal chances (Madow 1949): component k owns an interval of length
    q_k, and the points u, u + 1, u + 2, ... pick the intervals that they fall into.

    Args:
        gamma_BGM: responsibilities.
        u_B: one float64 uniform per sequence.
        passes: S, components per sequence; M or more keeps all, with weight gamma.
    """
    if passes >= gamma_BGM.shape[-1]:
        return gamma_BGM
    chance_BM = inclusion_chances(gamma_BGM, passes)
    end_BM = chance_BM.cumsum(-1)
    start_BM = end_BM - chance_BM
    # a point u + s lies in [start, end) exactly if ceil(x - u) differs between the two
    hit_BM = torch.ceil(end_BM - u_B[:, None]) > torch.ceil(start_BM - u_B[:, None])
    factor_BM = torch.where(hit_BM, 1.0 / chance_BM, 0.0)
    return gamma_BGM * factor_BM[:, None].to(gamma_BGM.dtype)


def inclusion_chances(gamma_BGM: Tensor, passes: int) -> Tensor:
    """q_BM ~ (sum_g gamma_gk^2)^{1/2}, in (0, 1], with sum S; float64."""
    size_BM = gamma_BGM.double().square().sum(1).sqrt()
    size_BM = size_BM.clamp_min(1e-12 * size_BM.sum(-1, keepdim=True))
    full_BM = torch.zeros_like(size_BM, dtype=torch.bool)
    chance_BM = size_BM
    for _ in range(passes + 1):  # a component that is certain leaves its surplus to the others
        left_B1 = passes - full_BM.sum(-1, keepdim=True)
        free_BM = torch.where(full_BM, 0.0, size_BM)
        chance_BM = torch.where(full_BM, 1.0, left_B1 * free_BM / free_BM.sum(-1, keepdim=True))
        full_BM = full_BM | (chance_BM >= 1.0)
    return chance_BM.clamp_max(1.0)

r"""Draws of latents from given uniforms, and the draws that spare branch passes in training.

The gradient of -log Psi is linear in the responsibilities gamma, so that any random weights with
E c_{gk} = gamma_{gk} give it without bias, however the groups depend on one another. What a step
pays for is the number of distinct components of a sequence that have weight anywhere:

* ``drawn_weights``: each group draws S components from its own gamma_g. With the *same* uniforms
  for all groups of a sequence, groups that agree draw the same component. Where every position is
  paid for by itself, uniforms of their own cost nothing and have less variance (``apart``).

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

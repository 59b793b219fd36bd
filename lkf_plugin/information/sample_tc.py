"""Total correlation from samples alone, and the control that shuffles the latent.

Two estimators that know nothing of the model. The plug-in estimator H(X) is at most log S, so it
scores tens of bits for *independent* tokens: it may only be read beside its value for a factorised
model with as many samples. The chain estimator sum_i I(X^i; X^(i+1)) is a lower bound of TC whose
bias (V - 1)^2 / 2S a pair is small and removed to first order; on hidden agreement it is TC itself.

The control: k is shuffled between sequences *position by position*, which keeps every marginal and
must destroy all correlation. Shuffling whole sequences' k, as the paper does, changes nothing
whatever the model has learned (k is i.i.d. there), so it cannot fail.

Shape legend: S samples, M components, N positions, V outcomes. Unit: nats.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lkf_plugin.corpora.plug_in import plug_in_entropy

SHUFFLES = ("none", "sequence", "position")


def draw_step(
    logw_M: Tensor,
    logp_MNV: Tensor,
    samples: int,
    generator: torch.Generator,
    shuffle: str = "none",
) -> Tensor:
    """Next states [S, N] whose latent was shuffled between drawing k and drawing tokens.

    Args:
        logw_M, logp_MNV: the step.
        samples: S.
        generator: of all draws.
        shuffle: ``none``; ``sequence``, one permutation of k over the samples; ``position``, one
            for each position.
    """
    assert shuffle in SHUFFLES
    component_S = torch.multinomial(logw_M.exp(), samples, True, generator=generator)
    order = torch.randperm(samples, generator=generator)
    columns = []
    for logp_MV in logp_MNV.unbind(1):
        if shuffle == "position":
            order = torch.randperm(samples, generator=generator)
        k_S = component_S if shuffle == "none" else component_S[order]
        # one draw from each sample's own row of probabilities, by inverse CDF
        cdf_MV = logp_MV.exp().cumsum(-1)
        u_S1 = torch.rand(samples, 1, generator=generator, dtype=cdf_MV.dtype)
        hit_S1 = torch.searchsorted(cdf_MV[k_S], u_S1 * cdf_MV[k_S, -1:], right=True)
        columns.append(hit_S1.squeeze(-1).clamp_max(logp_MV.shape[-1] - 1))
    return torch.stack(columns, dim=-1)


def plug_in_total_correlation(x_SN: Tensor) -> float:
    """sum_i H(X^i) - H(X) of the empirical law; biased upward, see the module."""
    _, row_S = torch.unique(x_SN, dim=0, return_inverse=True)
    return sum(plug_in_entropy(x_S) for x_S in x_SN.unbind(1)) - plug_in_entropy(row_S)


def chain_total_correlation(x_SN: Tensor) -> float:
    """sum_i I(X^i; X^(i+1)) with Miller and Madow's correction, a lower bound of TC."""
    columns = x_SN.unbind(1)
    return sum(_mutual_information(a, b) for a, b in zip(columns, columns[1:], strict=False))


def _mutual_information(a_S: Tensor, b_S: Tensor) -> float:
    pair_S = a_S * (int(b_S.max()) + 1) + b_S
    cells = [_corrected_entropy(ids) for ids in (a_S, b_S, pair_S)]
    return cells[0] + cells[1] - cells[2]


def _corrected_entropy(ids: Tensor) -> float:
    """Plug-in entropy plus (occupied cells - 1) / 2S."""
    return plug_in_entropy(ids) + (ids.unique().numel() - 1) / (2 * ids.numel())


def bits(nats: float) -> float:
    """The paper's unit for TC of samples."""
    return nats / math.log(2.0)

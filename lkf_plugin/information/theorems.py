"""The paper's theorems as numbers that can be checked on small state spaces.

Shape legend: X all outcomes, M components, L positions, Y states of a Markov chain. Unit: nats.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lkf_plugin.information.product_mixture import (
    ProductMixture,
    all_strings,
    component_log_probs,
    divergence,
    fit,
    random_mixture,
    total_variation,
)
from lkf_plugin.information.product_mixture import log_prob as mixture_log_prob
from lkf_plugin.kernel import entropy


@dataclass(frozen=True)
class MixtureGap:
    """Both sides of Thm. mixgap.

    Attributes:
        divergence: KL(P || Q).
        total_correlation: TC(P).
        captured: sum_i I(k; X^i) - I(k; X) under P(x) gamma_Q(k | x).
        ceiling: (L - 1) log M.
    """

    divergence: float
    total_correlation: float
    captured: float
    ceiling: float

    @property
    def slack(self) -> float:
        """KL less the first bound, >= 0 by the theorem."""
        return self.divergence - (self.total_correlation - self.captured)

    @property
    def slack_of_ceiling(self) -> float:
        """KL less the second bound, >= 0 by the theorem."""
        return self.divergence - max(self.total_correlation - self.ceiling, 0.0)


def mixture_gap(chance_X: Tensor, x_XL: Tensor, mixture: ProductMixture) -> MixtureGap:
    """Evaluates Thm. mixgap by listing outcomes.

    Args:
        chance_X: P over the rows of ``x_XL``, zero elsewhere.
        x_XL: outcomes, at least the support of P.
        mixture: Q, positive there.
    """
    length, values = x_XL.shape[1], mixture.logq_MLV.shape[-1]
    joint_XM = mixture.logw_M + component_log_probs(mixture.logq_MLV, x_XL)
    logq_X = torch.logsumexp(joint_XM, dim=-1)
    tilted_XM = chance_X[:, None] * torch.softmax(joint_XM, dim=-1)
    share_M = tilted_XM.sum(0)
    onehot_XLV = torch.nn.functional.one_hot(x_XL, values).double()
    cells_MLV = torch.einsum("xm,xlv->mlv", tilted_XM, onehot_XLV)
    h_marginals = entropy(cells_MLV.sum(0).log()).sum()
    h_share = entropy(share_M.log())
    h_joint_parts = entropy(cells_MLV.movedim(1, 0).flatten(1).log()).sum()
    parts = h_marginals + length * h_share - h_joint_parts
    h_x = entropy(chance_X.log())
    whole = h_x + h_share - entropy(tilted_XM.flatten().log())
    return MixtureGap(
        divergence(chance_X, logq_X).item(),
        (h_marginals - h_x).item(),
        (parts - whole).item(),
        (length - 1) * math.log(len(mixture.logw_M)),
    )


def even_strings(bits: int) -> tuple[Tensor, Tensor]:
    """All strings of ``bits`` bits [X, L] and the even-parity law over them [X]."""
    x_XL = all_strings(bits, 2)
    even_X = (x_XL.sum(-1) % 2 == 0).double()
    return x_XL, even_X / even_X.sum()


def parity_bound(components: int, bits: int) -> float:
    """Thm. parity read as a bound on TV: (1 - M / 2^(d-1)) / 3, and 0 where that is negative."""
    return max(1.0 - components / 2 ** (bits - 1), 0.0) / 3.0


def closest_to_parity(components: int, bits: int, starts: int, rounds: int, seed: int) -> float:
    """Least TV to the even strings over EM fits from random starts, each start included."""
    x_XL, chance_X = even_strings(bits)
    generator = torch.Generator().manual_seed(seed)
    best = 1.0
    for _ in range(starts):
        start = random_mixture(components, bits, 2, generator, sharp=3.0)
        for mixture in (start, fit(x_XL, chance_X, start, rounds)):
            logq_X = mixture_log_prob(mixture, x_XL)
            best = min(best, total_variation(chance_X, logq_X).item())
    return best


def random_coordinatewise_generator(
    length: int, values: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """A generator that changes one coordinate at a time, with random rates in [0, 1).

    Returns:
        The states [Y, L] and the generator [Y, Y], rows summing to zero.
    """
    states_YL = all_strings(length, values)
    distance_YY = (states_YL[:, None] != states_YL[None]).sum(-1)
    rates_YY = torch.rand(distance_YY.shape, generator=generator, dtype=torch.float64)
    rates_YY = torch.where(distance_YY == 1, rates_YY, 0.0)
    return states_YL, rates_YY - torch.diag(rates_YY.sum(-1))


def mix_generators(weight_YM: Tensor, generator_MYY: Tensor) -> Tensor:
    """Locally averaged generator: sum_k w_k(x) R_k(x, y)."""
    return torch.einsum("ym,myz->yz", weight_YM, generator_MYY)


def factorization_error(generator_YY: Tensor, states_YL: Tensor, delta: float) -> float:
    """TV between the kernel of length delta and the product of its marginals, at worst over x."""
    kernel_YY = torch.linalg.matrix_exp(delta * generator_YY)
    product_YY = torch.ones_like(kernel_YY)
    for value_Y in states_YL.T:
        same_YY = (value_Y[:, None] == value_Y[None]).double()
        product_YY = product_YY * (kernel_YY @ same_YY)
    return 0.5 * (kernel_YY - product_YY).abs().sum(-1).max().item()

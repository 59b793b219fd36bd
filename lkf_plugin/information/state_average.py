"""Where along (t, s) the correlation lives: I and TC averaged over the states at time t.

At a late t the all-mask state is too rare to be met by chance ((1/2)^8 at t = 1/2, L = 8), yet it
may carry nearly everything. So it is a stratum of its own with its exact weight (1 - t)^L, and
states with something visible are drawn for the rest.

Shape legend: B states, L positions. Unit: nats.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lkf_plugin.information.laws import StepLaw
from lkf_plugin.information.step import StepInformation, step_information
from lkf_plugin.records.estimate import Estimate

Draw = Callable[[int, int], Tensor]
"""(n, seed) -> n clean sequences [n, L]."""


@dataclass(frozen=True)
class PointInformation:
    """What a step from t to s carries, averaged over x_t.

    Attributes:
        t, s: times in the paper's clock.
        information: E I(k; X_s | x_t), at most ``information_ceiling``.
        total_correlation: E TC(X_s | x_t), at most ``total_correlation_ceiling``.
        information_ceiling: log M.
        total_correlation_ceiling: E (N - 1)+ log M, N masked positions; (L - 1) log M at t = 0.
        all_mask_weight: (1 - t)^L.
        states: states drawn besides the all-mask state.
    """

    t: float
    s: float
    information: Estimate
    total_correlation: Estimate
    information_ceiling: float
    total_correlation_ceiling: float
    all_mask_weight: float
    states: int


def partly_masked(x_BL: Tensor, t: float, mask: int, generator: torch.Generator) -> Tensor:
    """x_t given that at least one token is visible."""
    rows, length = x_BL.shape
    chances = [
        math.comb(length, n) * t**n * (1 - t) ** (length - n) for n in range(1, length + 1)
    ]
    weights = torch.tensor(chances, dtype=torch.float64)
    visible_B = torch.multinomial(weights, rows, True, generator=generator) + 1
    rank_BL = torch.rand(rows, length, generator=generator).argsort(-1).argsort(-1)
    return torch.where(rank_BL < visible_B[:, None], x_BL, mask)


def information_at(
    law: StepLaw,
    draw: Draw,
    mask: int,
    t: float,
    s: float,
    states: int = 48,
    samples: int = 8192,
    seed: int = 0,
) -> PointInformation:
    """I and TC of the step from t to s.

    Args:
        law: the model.
        draw: the corpus.
        mask: id of the mask.
        t, s: times in the paper's clock, 0 <= t < s <= 1.
        states: draws of x_t with something visible (none are needed at t = 0).
        samples: Monte Carlo draws where outcomes cannot be listed: all of them at the all-mask
            state, an eighth at each other.
        seed: of the states and the Monte Carlo draws.
    """
    generator = torch.Generator().manual_seed(seed)
    length = draw(1, seed).shape[1]
    open_1L = torch.full((1, length), mask)
    hidden = _steps(law, open_1L, mask, t, s, samples, generator)[0]
    weight = (1.0 - t) ** length
    if t == 0.0:
        states = 0
        seen: list[StepInformation] = []
    else:
        xt_BL = partly_masked(draw(states, seed), t, mask, generator)
        seen = _steps(law, xt_BL, mask, t, s, max(samples // 8, 1), generator)
    chance = [math.comb(length, n) * (1 - t) ** n * t ** (length - n) for n in range(length + 1)]
    masked = sum(c * max(n - 1, 0) for n, c in enumerate(chance))
    return PointInformation(
        t,
        s,
        _stratified(weight, hidden.information, [one.information.value for one in seen]),
        _stratified(
            weight, hidden.total_correlation, [one.total_correlation.value for one in seen]
        ),
        hidden.information_ceiling,
        masked * hidden.information_ceiling,
        weight,
        states,
    )


def _steps(
    law: StepLaw,
    xt_BL: Tensor,
    mask: int,
    t: float,
    s: float,
    samples: int,
    generator: torch.Generator,
) -> list[StepInformation]:
    steps = []
    for x_1L in xt_BL.split(1):
        logw_BM, logp_BMLV = law(x_1L, t, s)
        logp_MNV = logp_BMLV[0][:, x_1L[0] == mask]
        steps.append(step_information(logw_BM[0], logp_MNV, samples, generator))
    return steps


def _stratified(weight: float, hidden: Estimate, seen: list[float]) -> Estimate:
    """Two strata; the error of the second holds both the states' and the Monte Carlo spread."""
    hidden_error = hidden.se or 0.0
    if not seen:
        return Estimate(weight * hidden.value, weight * hidden_error)
    values = torch.tensor(seen, dtype=torch.float64)
    error = values.std().item() / math.sqrt(len(seen)) if len(seen) > 1 else math.inf
    return Estimate(
        weight * hidden.value + (1 - weight) * values.mean().item(),
        math.hypot(weight * hidden_error, (1 - weight) * error),
    )

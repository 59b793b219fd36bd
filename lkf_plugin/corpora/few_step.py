r"""How often a perfect few-step sampler ends on a valid sequence.

The setting of every formula here: *a* positions (carriers) must show the same value out of *K*
equally likely ones. A sampler with exact conditionals but independent draws inside a step errs only
when several carriers are revealed at once before any of them is visible. In the clock of the paper
(t=0 all masked, t=1 clean) each position is revealed in step j with probability
:math:`w_j = t_j - t_{j-1}`, independently, so with :math:`R_j = 1 - t_j` still to come

.. math:: P = \sum_j \sum_{m \ge 1} \binom{a}{m} w_j^m R_j^{a-m} K^{1-m}
            = \sum_j K \left[(R_j + w_j / K)^a - R_j^a\right].
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from lkf_plugin.errors import UserError

Steps = int | Sequence[float]
"""A number of equal steps, or the times of a grid that rises from 0 to 1."""


def step_times(steps: Steps) -> list[float]:
    """Spell out a grid of times.

    Args:
        steps: number of equal steps J, or the J + 1 times themselves.

    Returns:
        The times 0 = t_0 < ... < t_J = 1.

    Raises:
        UserError: if there is no step, or the times do not rise strictly from 0 to 1.
    """
    if isinstance(steps, int):
        if steps < 1:
            raise UserError(f"A sampler needs at least 1 step, not {steps}.")
        return [j / steps for j in range(steps + 1)]
    times = [float(time) for time in steps]
    rising = all(low < high for low, high in zip(times, times[1:], strict=False))
    if len(times) < 2 or times[0] != 0.0 or times[-1] != 1.0 or not rising:
        raise UserError("Give sampling times that rise strictly from 0 to 1.")
    return times


def power_gap(base: float, step: float, exponent: int) -> float:
    """Return ``(base + step)**exponent - base**exponent`` without cancellation."""
    if base == 0.0:
        return step**exponent
    return base**exponent * math.expm1(exponent * math.log1p(step / base))


def agreement_probability(carriers: int, values: float, steps: Steps) -> float:
    """Probability that all carriers of one feature agree after a few steps.

    Args:
        carriers: number of positions *a* that show the feature.
        values: number *K* of equally likely values that are still open (1: already decided).
        steps: number of equal steps, or a grid of times.

    Returns:
        The probability P of the module's formula.
    """
    times = step_times(steps)
    if values == 1:
        return 1.0
    return sum(
        values * power_gap(1.0 - end, (end - start) / values, carriers)
        for start, end in zip(times, times[1:], strict=False)
    )


def partition_agreement(carriers: int, groups: Sequence[int], steps: Steps) -> float:
    """The same probability for a committed latent that splits the values into groups.

    A component is drawn in proportion to its group's size g and leaves g values open.

    Args:
        carriers: number of positions that show the feature.
        groups: group sizes; they add up to the number of values.
        steps: number of equal steps, or a grid of times.

    Returns:
        The average of :func:`agreement_probability` over the components.
    """
    total = sum(groups)
    return sum(g / total * agreement_probability(carriers, g, steps) for g in groups)

"""A number with its standard error, and the three ways in which we get one.

Shapes: S samples, G groups of the jackknife.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Estimate:
    """A metric's value, its standard error and the number of samples behind both.

    Attributes:
        value: the estimate, in the metric's own unit.
        se: its standard error, or ``None`` where one sample cannot tell.
        n: samples that entered.
    """

    value: float
    se: float | None
    n: int


def mean_and_error(values_S: Sequence[float] | np.ndarray) -> Estimate:
    """Mean of independent values with its standard error (sample deviation over root n).

    Args:
        values_S: shape (S,), at least one value.
    """
    values = np.asarray(values_S, dtype=np.float64)
    assert values.ndim == 1 and values.size > 0, "needs a flat, non-empty list of values"
    n = values.size
    se = float(values.std(ddof=1) / math.sqrt(n)) if n > 1 else None
    return Estimate(float(values.mean()), se, n)


def jackknife_groups(n: int, most: int = 20) -> np.ndarray:
    """Group index of each of n samples: up to ``most`` contiguous groups of equal size (+-1)."""
    return np.arange(n) * min(most, n) // max(n, 1)


def jackknife_error(without_G: Sequence[float] | np.ndarray) -> float | None:
    """Standard error of a pooled statistic from its values with one group left out at a time.

    Fit for statistics such as a pooled entropy or distinct-n, for which a bootstrap is biased: a
    sample drawn twice repeats itself.

    Args:
        without_G: shape (G,), the statistic without group g.
    """
    without = np.asarray(without_G, dtype=np.float64)
    if without.size < 2:
        return None
    spread = np.square(without - without.mean()).sum()
    return float(math.sqrt((without.size - 1) / without.size * spread))


def bootstrap_ratio(
    total_S: np.ndarray, count_S: np.ndarray, replicates: int, seed: int
) -> np.ndarray:
    """Draws of sum(total) / sum(count) when the samples are redrawn with replacement.

    Args:
        total_S: shape (S,), for example a sample's negative log-likelihood in nats.
        count_S: shape (S,), for example its number of tokens; at least one is positive.
        replicates: number of redraws R.
        seed: of the redraws.

    Returns:
        Shape (R,), float64. Redraws that hold no counted token are left out.
    """
    generator = np.random.default_rng(seed)
    size = total_S.size
    ratios = []
    for _ in range(replicates):
        chosen = generator.integers(0, size, size)
        count = count_S[chosen].sum()
        if count > 0:
            ratios.append(total_S[chosen].sum() / count)
    return np.asarray(ratios, dtype=np.float64)

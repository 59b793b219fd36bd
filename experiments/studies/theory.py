"""The theorem checks as one record: what the bounds say and how tight they were met."""

from __future__ import annotations

import math
from typing import Any

import torch

from lkf_plugin.information.product_mixture import (
    ProductMixture,
    all_strings,
    fit,
    random_mixture,
)
from lkf_plugin.information.theorems import (
    closest_to_parity,
    factorization_error,
    mix_generators,
    mixture_gap,
    parity_bound,
    random_coordinatewise_generator,
)

DELTAS = (0.1, 0.05, 0.025, 0.0125, 0.00625)


def mixture_gaps(trials: int, seed: int = 0) -> dict[str, Any]:
    """Thm. mixgap on random P and Q (4 positions, 4 values, 5 components), and its equality."""
    generator = torch.Generator().manual_seed(seed)
    x_XL = all_strings(4, 4)
    slacks, ceilings = [], []
    for trial in range(trials):
        logits_X = 3.0 * torch.randn(len(x_XL), generator=generator, dtype=torch.float64)
        chance_X = torch.softmax(logits_X, -1)
        mixture = random_mixture(5, 4, 4, generator, 2.0)
        if trial % 10 == 0:  # near the best mixture the bounds are tightest
            mixture = fit(x_XL, chance_X, mixture, 30)
        gap = mixture_gap(chance_X, x_XL, mixture)
        slacks.append(gap.slack)
        ceilings.append(gap.slack_of_ceiling)
    equal = mixture_gap(*agreement(4, 4))
    return {
        "trials": trials,
        "least_slack": min(slacks),
        "least_slack_of_ceiling": min(ceilings),
        "hidden_agreement_slack": equal.slack,
        "hidden_agreement_slack_of_ceiling": equal.slack_of_ceiling,
    }


def agreement(values: int, length: int) -> tuple[torch.Tensor, torch.Tensor, ProductMixture]:
    """Hidden agreement's law, its support, and the mixture with M = V that equals it."""
    x_XL = torch.arange(values)[:, None].expand(values, length)
    chance_X = torch.full((values,), 1.0 / values, dtype=torch.float64)
    onehot_MV = torch.eye(values, dtype=torch.float64).log()
    logq_MLV = onehot_MV[:, None].expand(values, length, values)
    return chance_X, x_XL, ProductMixture(chance_X.log(), logq_MLV)


def parity_distances(largest: int, starts: int, seed: int = 0) -> list[dict[str, float]]:
    """Thm. parity: least TV found by EM for d = 2 to ``largest`` and M = 1, 2, 4, ..., 2^(d-1)."""
    return [
        {
            "bits": d,
            "components": 2**b,
            "bound": parity_bound(2**b, d),
            "found": closest_to_parity(2**b, d, starts, 150, seed),
        }
        for d in range(2, largest + 1)
        for b in range(d)
    ]


def rate_errors(seed: int = 0) -> dict[str, Any]:
    """Prop. rates: the error of factorization of mixed generators falls as delta squared."""
    generator = torch.Generator().manual_seed(seed)
    parts = [random_coordinatewise_generator(3, 3, generator) for _ in range(4)]
    states_YL = parts[0][0]
    weight_YM = torch.softmax(
        torch.randn(len(states_YL), 4, generator=generator, dtype=torch.float64), -1
    )
    mixed_YY = mix_generators(weight_YM, torch.stack([rates for _, rates in parts]))
    errors = [factorization_error(mixed_YY, states_YL, delta) for delta in DELTAS]
    orders = [math.log2(a / b) for a, b in zip(errors, errors[1:], strict=False)]
    return {"deltas": list(DELTAS), "errors": errors, "orders": orders}


def measure_theory() -> dict[str, Any]:
    """All three."""
    return {"mixgap": mixture_gaps(300), "parity": parity_distances(5, 12), "rates": rate_errors()}

"""The standard error of a validation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lkf_plugin.records.estimate import mean_and_error
from lkf_plugin.train.spread import Spread


def test_equal_lengths_give_the_error_of_a_mean():
    torch.manual_seed(0)
    nats = 40 + 5 * torch.randn(60, dtype=torch.float64)
    spread = Spread()
    for part in nats.split(13):
        spread.add(part, torch.full_like(part, 16.0))
    assert spread.standard_error() == pytest.approx(mean_and_error((nats / 16).numpy()).se)


def test_unequal_lengths_give_the_spread_of_the_ratio():
    rng = np.random.default_rng(0)
    ratios = []
    for _ in range(2000):
        tokens = rng.integers(5, 40, 80)
        nats = 2 * tokens + rng.normal(0, 1, 80) * np.sqrt(tokens)
        ratios.append(nats.sum() / tokens.sum())
    spread = Spread()
    spread.add(torch.tensor(nats), torch.tensor(tokens))
    assert spread.standard_error() == pytest.approx(np.std(ratios), rel=0.3)


def test_one_sequence_cannot_tell():
    spread = Spread()
    assert spread.standard_error() is None
    spread.add(torch.ones(1), torch.ones(1))
    assert spread.standard_error() is None

from __future__ import annotations

import itertools
import math

import pytest
import torch

from lkf_plugin.corpora.plug_in import expected_plug_in_entropy, plug_in_entropy


def test_known_samples() -> None:
    assert plug_in_entropy(torch.tensor([4, 4, 9, 9])) == pytest.approx(math.log(2))
    assert plug_in_entropy(torch.tensor([3, 3, 3])) == 0.0
    assert plug_in_entropy(torch.tensor([], dtype=torch.long)) == 0.0


@pytest.mark.parametrize(("draws", "cells"), [(1, 4), (3, 2), (4, 3), (5, 1), (0, 4)])
def test_expectation_by_enumeration(draws: int, cells: int) -> None:
    values = [
        plug_in_entropy(torch.tensor(sample, dtype=torch.long))
        for sample in itertools.product(range(cells), repeat=draws)
    ]
    expected = sum(values) / len(values)
    assert expected_plug_in_entropy(draws, cells) == pytest.approx(expected, abs=1e-12)


def test_large_samples_reach_the_entropy() -> None:
    gap = math.log(64) - expected_plug_in_entropy(100_000, 64)
    assert gap == pytest.approx(63 / 200_000, rel=0.01)  # Miller and Madow

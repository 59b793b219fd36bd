"""Weighted means in float64."""

from __future__ import annotations

import math

import pytest
import torch

from lkf_plugin.train.metrics import Reported, WeightedMeans, likelihood


def test_means_weigh_tokens_and_sequences() -> None:
    means = WeightedMeans()
    cpu = torch.device("cpu")
    means.add("nll", torch.tensor(6.0), torch.tensor(2.0))
    means.add("nll", torch.tensor(3.0), torch.tensor(4.0))
    means.add_extras({"a": torch.tensor(1.0), "b": (torch.tensor(2.0), 5)}, 3, cpu)
    means.add_extras({"a": torch.tensor(4.0), "b": (torch.tensor(4.0), 15)}, 1, cpu)
    assert means.compute() == {"a": 7 / 4, "b": 70 / 20, "nll": 1.5}
    means.reset()
    assert means.compute() == {}


def test_small_terms_survive_many_large_ones() -> None:
    means = WeightedMeans()
    means.add("nll", torch.tensor(1e9), torch.tensor(1.0))
    for _ in range(100):
        means.add("nll", torch.tensor(1e-3), torch.tensor(0.0))
    assert means.compute()["nll"] == pytest.approx(1e9 + 0.1, rel=0, abs=1e-5)


def test_likelihood_forms() -> None:
    forms = likelihood(2 * math.log(2))
    assert forms["bpd"] == pytest.approx(2)
    assert forms["ppl"] == pytest.approx(4)


def test_reported_keeps_float64() -> None:
    metric = Reported()
    metric.update(1 / 3)
    assert metric.compute().item() == 1 / 3

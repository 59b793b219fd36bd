"""Estimators against enumeration, and Prop. tc as a property."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lkf_plugin.information import step


def random_step(seed: int, M: int, N: int, V: int, sharp: float = 1.0):
    g = torch.Generator().manual_seed(seed)
    logw = torch.log_softmax(torch.randn(M, generator=g, dtype=torch.float64), -1)
    logp = torch.log_softmax(sharp * torch.randn(M, N, V, generator=g, dtype=torch.float64), -1)
    return logw, logp


def total_correlation_by_hand(logw, logp):
    M, N, V = logp.shape
    joint = {}
    for x in itertools.product(range(V), repeat=N):
        ell = sum(logp[:, i, v] for i, v in enumerate(x))
        joint[x] = (logw.exp() * ell.exp()).sum().item()
    h_joint = -sum(p * math.log(p) for p in joint.values() if p > 0)
    h_marginals = 0.0
    for i in range(N):
        for v in range(V):
            p = sum(q for x, q in joint.items() if x[i] == v)
            h_marginals -= p * math.log(p) if p > 0 else 0.0
    return h_marginals - h_joint


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    M=st.integers(1, 4),
    N=st.integers(1, 4),
    V=st.integers(2, 4),
    sharp=st.floats(0.1, 6),
)
def test_prop_tc(seed, M, N, V, sharp):
    """TC = sum I(k; X^i) - I(k; X), and 0 <= TC <= (N-1) H(k) <= (N-1) log M, I <= H(k)."""
    logw, logp = random_step(seed, M, N, V, sharp)
    found = step.step_information(logw, logp)
    tc = total_correlation_by_hand(logw, logp)
    assert found.total_correlation.value == pytest.approx(tc, abs=1e-10)
    assert -1e-12 <= found.information.value <= found.prior_entropy + 1e-12
    assert -1e-12 <= tc <= (N - 1) * found.prior_entropy + 1e-10
    assert found.prior_entropy <= found.information_ceiling + 1e-12


@pytest.mark.parametrize("sharp", [0.5, 3.0])
def test_monte_carlo_is_unbiased(sharp):
    logw, logp = random_step(3, 4, 4, 4, sharp)
    exact = step.information_exact(logw, logp).item()
    g = torch.Generator().manual_seed(1)
    found = step.information_monte_carlo(logw, logp, 40_000, g)
    assert abs(found.value - exact) < 4.5 * found.se
    assert found.se < 0.02


def test_many_outcomes_take_monte_carlo():
    logw, logp = random_step(0, 3, 12, 10)
    found = step.step_information(logw, logp, 2000)
    assert found.information.se > 0
    assert found.total_correlation.se == found.information.se


def test_one_component_carries_exactly_nothing():
    found = step.step_information(*random_step(0, 1, 12, 10))
    assert found.information == step.Estimate(0.0, 0.0)
    assert found.total_correlation == step.Estimate(0.0, 0.0)


def test_hidden_agreement_is_at_both_ceilings():
    """M = V deterministic components: I = log V and TC = (N - 1) log V."""
    V, N = 4, 5
    logw = torch.full((V,), -math.log(V), dtype=torch.float64)
    logp = torch.eye(V, dtype=torch.float64).log()[:, None, :].expand(V, N, V)
    found = step.step_information(logw, logp)
    assert found.information.value == pytest.approx(math.log(V))
    assert found.total_correlation.value == pytest.approx((N - 1) * math.log(V))


def test_permuting_components_changes_nothing():
    logw, logp = random_step(5, 4, 3, 3)
    order = torch.tensor([2, 0, 3, 1])
    a, b = step.step_information(logw, logp), step.step_information(logw[order], logp[order])
    assert a.information.value == pytest.approx(b.information.value, abs=1e-12)
    assert a.total_correlation.value == pytest.approx(b.total_correlation.value, abs=1e-12)

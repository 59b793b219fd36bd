"""The paper's theorems as properties, by listing all outcomes."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.studies.theory import agreement, rate_errors
from lkf_plugin.information.product_mixture import (
    ProductMixture,
    all_strings,
    divergence,
    fit,
    log_prob,
    random_mixture,
    total_variation,
)
from lkf_plugin.information.theorems import (
    closest_to_parity,
    even_strings,
    factorization_error,
    mix_generators,
    mixture_gap,
    parity_bound,
    random_coordinatewise_generator,
)


def random_law(cells: int, generator: torch.Generator, sharp: float) -> torch.Tensor:
    return torch.softmax(sharp * torch.randn(cells, generator=generator, dtype=torch.float64), -1)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    M=st.integers(1, 5),
    L=st.integers(2, 4),
    V=st.integers(2, 3),
    sharp=st.floats(0.3, 5.0),
    rounds=st.sampled_from([0, 10]),
)
def test_mixture_gap(seed, M, L, V, sharp, rounds):
    """Thm. mixgap: both bounds, for random mixtures and for those that EM makes tight."""
    generator = torch.Generator().manual_seed(seed)
    x_XL = all_strings(L, V)
    chance_X = random_law(len(x_XL), generator, sharp)
    mixture = fit(x_XL, chance_X, random_mixture(M, L, V, generator, 2.0), rounds)
    found = mixture_gap(chance_X, x_XL, mixture)
    assert found.slack >= -1e-9
    assert found.slack_of_ceiling >= -1e-9
    assert found.captured <= found.ceiling + 1e-9


def test_mixture_gap_is_tight_for_one_component():
    """M = 1 at the product of the marginals: KL = TC exactly."""
    generator = torch.Generator().manual_seed(1)
    x_XL = all_strings(3, 3)
    chance_X = random_law(len(x_XL), generator, 2.0)
    found = mixture_gap(chance_X, x_XL, fit(x_XL, chance_X, random_mixture(1, 3, 3, generator), 1))
    assert found.slack == pytest.approx(0.0, abs=1e-12)
    assert found.slack_of_ceiling == pytest.approx(0.0, abs=1e-12)
    assert found.captured == pytest.approx(0.0, abs=1e-12)


def test_mixture_gap_meets_the_ceiling_on_hidden_agreement():
    """M = V: no divergence, and the captured correlation is (L - 1) log V."""
    found = mixture_gap(*agreement(4, 4))
    assert found.divergence == pytest.approx(0.0, abs=1e-12)
    assert found.captured == pytest.approx(3 * math.log(4))
    assert found.slack == pytest.approx(0.0, abs=1e-12)


def test_em_never_gets_worse():
    generator = torch.Generator().manual_seed(0)
    x_XL = all_strings(3, 3)
    chance_X = random_law(len(x_XL), generator, 2.0)
    mixture = random_mixture(3, 3, 3, generator)
    losses = []
    for _ in range(8):
        losses.append(divergence(chance_X, log_prob(mixture, x_XL)).item())
        mixture = fit(x_XL, chance_X, mixture, 1)
    assert all(b <= a + 1e-12 for a, b in zip(losses, losses[1:], strict=False))
    assert log_prob(mixture, x_XL).exp().sum().item() == pytest.approx(1.0)


def test_em_finds_a_mixture_that_is_there():
    """Two well separated components are recovered from their own law."""
    x_XL = all_strings(3, 2)
    high, low = math.log(0.9), math.log(0.1)
    logq = torch.tensor([[[high, low]] * 3, [[low, high]] * 3], dtype=torch.float64)
    truth = ProductMixture(torch.tensor([0.3, 0.7], dtype=torch.float64).log(), logq)
    chance_X = log_prob(truth, x_XL).exp()
    start = random_mixture(2, 3, 2, torch.Generator().manual_seed(0))
    found = fit(x_XL, chance_X, start, 500)
    assert divergence(chance_X, log_prob(found, x_XL)).item() < 1e-6


@pytest.mark.parametrize("bits", [2, 3, 4, 5])
def test_parity_separation(bits):
    """Thm. parity: no mixture comes closer than (1 - M / 2^(d-1)) / 3; M = 2^(d-1) is exact."""
    for components in [2**b for b in range(bits - 1)]:
        found = closest_to_parity(components, bits, starts=3, rounds=60, seed=bits)
        assert found >= parity_bound(components, bits)
    x_XL, chance_X = even_strings(bits)
    even_ML = x_XL[chance_X > 0]
    logq = torch.nn.functional.one_hot(even_ML, 2).double().log().clamp_min(-1e4)
    logw = torch.full((len(even_ML),), -math.log(len(even_ML)), dtype=torch.float64)
    exact = log_prob(ProductMixture(logw, logq), x_XL)
    assert total_variation(chance_X, exact).item() == pytest.approx(0.0, abs=1e-12)


def test_mixed_rates_factorize_to_second_order():
    """Prop. rates: the error falls as delta^2, and is not zero."""
    orders = rate_errors(seed=1)["orders"]
    assert orders[-1] == pytest.approx(2.0, abs=0.15)
    assert orders == sorted(orders)


def test_mixed_generator_is_coordinatewise():
    generator = torch.Generator().manual_seed(0)
    parts = [random_coordinatewise_generator(2, 3, generator) for _ in range(3)]
    states = parts[0][0]
    weight = torch.softmax(torch.randn(9, 3, generator=generator, dtype=torch.float64), -1)
    mixed = mix_generators(weight, torch.stack([rates for _, rates in parts]))
    changed = (states[:, None] != states[None]).sum(-1)
    assert bool((mixed[changed > 1] == 0).all())
    assert mixed.sum(-1).abs().max().item() < 1e-12


def test_independent_coordinates_factorize_at_any_step():
    """A sum of generators of single coordinates has no error: the measure itself is right."""
    rates = torch.tensor([[-1.0, 1.0], [0.5, -0.5]], dtype=torch.float64)
    eye = torch.eye(2, dtype=torch.float64)
    joint = torch.kron(rates, eye) + torch.kron(eye, 2 * rates)
    assert factorization_error(joint, all_strings(2, 2), 0.7) == pytest.approx(0.0, abs=1e-12)

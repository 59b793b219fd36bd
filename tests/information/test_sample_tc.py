"""Sample estimators of TC and the control that shuffles the latent."""

from __future__ import annotations

import math

import pytest
import torch

from lkf_plugin.information.sample_tc import (
    chain_total_correlation,
    draw_step,
    plug_in_total_correlation,
)

V, N, S = 8, 6, 6000


@pytest.fixture(scope="module")
def perfect_step():
    """Hidden agreement: component k says k everywhere."""
    logw = torch.full((V,), -math.log(V), dtype=torch.float64)
    return logw, torch.eye(V, dtype=torch.float64).log()[:, None].expand(V, N, V)


def sample(step, shuffle="none", seed=0, samples=S):
    return draw_step(*step, samples, torch.Generator().manual_seed(seed), shuffle)


def test_chain_estimator_is_exact_on_hidden_agreement(perfect_step):
    exact = (N - 1) * math.log(V)
    assert chain_total_correlation(sample(perfect_step)) == pytest.approx(exact, abs=0.02)


def test_shuffling_whole_rows_cannot_fail(perfect_step):
    """The paper's control: whatever was learned, it changes nothing."""
    kept = chain_total_correlation(sample(perfect_step, "sequence"))
    assert kept == pytest.approx((N - 1) * math.log(V), abs=0.02)


def test_shuffling_by_position_destroys_the_correlation(perfect_step):
    x = sample(perfect_step, "position")
    assert abs(chain_total_correlation(x)) < 0.02
    # and keeps the marginals
    share = torch.bincount(x[:, 0], minlength=V).double() / S
    assert (share - 1 / V).abs().max().item() < 0.03


def test_plug_in_scores_nats_for_independent_tokens():
    """Why it is shown only beside a factorised model's."""
    x = torch.randint(V, (512, N), generator=torch.Generator().manual_seed(0))
    assert plug_in_total_correlation(x) > 5.0
    assert abs(chain_total_correlation(x)) < 0.15


def test_draws_follow_their_own_component():
    """One position, two components: the joint of (k, x) is recovered through the marginal."""
    logw = torch.tensor([0.25, 0.75], dtype=torch.float64).log()
    logp = torch.tensor([[[0.9, 0.1]], [[0.2, 0.8]]], dtype=torch.float64).log()
    x = sample((logw, logp), samples=20_000)
    assert (x == 0).double().mean().item() == pytest.approx(0.25 * 0.9 + 0.75 * 0.2, abs=0.015)

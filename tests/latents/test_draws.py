"""Weights of the drawn backward pass: unbiased, and sparing with passes."""

from __future__ import annotations

import pytest
import torch

from lkf_plugin.latents.draws import (
    drawn_weights,
    inverse_cdf,
    systematic,
)

FINE = 20_000  # midpoints of [0, 1]: the mean over them is the expectation to 1 / FINE


@pytest.fixture
def gamma_BGM() -> torch.Tensor:
    torch.manual_seed(0)
    gamma = torch.softmax(2 * torch.randn(1, 6, 5, dtype=torch.float64), -1)
    gamma[0, 0] = torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0])
    return gamma


@pytest.fixture
def u_B() -> torch.Tensor:
    return (torch.arange(FINE, dtype=torch.float64) + 0.5) / FINE


def many(gamma_BGM: torch.Tensor) -> torch.Tensor:
    return gamma_BGM.expand(FINE, -1, -1)


@pytest.mark.parametrize("draws", [1, 2, 3])
@pytest.mark.parametrize("keep_above", [1.0, 0.5])
def test_coupled_draws_are_unbiased(gamma_BGM, u_B, draws, keep_above):
    weight = drawn_weights(many(gamma_BGM), systematic(u_B[:, None], draws), keep_above)
    torch.testing.assert_close(weight.mean(0), gamma_BGM[0], atol=2 / FINE, rtol=0)
    assert (weight[:, 0] == gamma_BGM[0, 0]).all()
    torch.testing.assert_close(weight.sum(-1), torch.ones(FINE, 6, dtype=torch.float64))


def test_systematic_counts_are_floor_or_ceiling(gamma_BGM, u_B):
    count = 3 * drawn_weights(many(gamma_BGM), systematic(u_B[:, None], 3))
    assert ((count - 3 * gamma_BGM).abs() < 1 + 1e-9).all()


def test_groups_that_agree_draw_the_same_component(gamma_BGM, u_B):
    alike = gamma_BGM[:, 1:2].expand(FINE, 6, -1)
    weight = drawn_weights(alike, u_B[:, None, None])
    assert ((weight > 0).any(1).sum(-1) == 1).all()


def test_inverse_cdf_skips_what_has_no_weight(u_B):
    weight_BM = torch.tensor([[0.0, 0.25, 0.0, 0.75, 0.0]]).expand(FINE, -1)
    hit_B = inverse_cdf(weight_BM, u_B)
    assert torch.equal(hit_B, torch.where(u_B < 0.25, 1, 3))

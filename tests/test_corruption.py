"""Clocks, masking and grids; MDLM's draws from the golden arrays."""

from __future__ import annotations

import pytest
import torch

from lkf_plugin import corruption
from tests.golden_arrays import SUBS_FILES, assert_matches, decided, load


@pytest.mark.parametrize("name", SUBS_FILES)
def test_time_noise_and_mask_are_mdlm_s(name):
    g = load(name)
    t = corruption.times_from_uniforms(g["u_t"], antithetic=True, sampling_eps=1e-3)
    assert_matches(t, g["t"], "t")
    sigma, dsigma = corruption.LogLinearNoise()(g["t"])
    assert_matches(sigma, g["sigma"], "sigma")
    assert_matches(dsigma, g["dsigma"], "dsigma")
    move = corruption.move_chance_from_sigma(sigma[:, None])
    assert_matches(move, g["move_chance"], "move_chance", operand=1.0)
    assert decided(g["u_mask"], move)
    xt = torch.where(g["u_mask"] < move, g["mask_index"], g["x0"])
    assert torch.equal(xt, g["xt"])


def test_mask_tokens_draws_one_uniform_a_token():
    x = torch.arange(12).view(3, 4)
    torch.manual_seed(3)
    masked = corruption.mask_tokens(x, torch.full((3, 1), 0.5), 99)
    torch.manual_seed(3)
    assert torch.equal(masked == 99, torch.rand(3, 4) < 0.5)


def test_nelbo_weight_is_one_over_tau():
    tau = torch.linspace(0.001, 1, 50, dtype=torch.float64)
    weight = corruption.nelbo_weight(*corruption.LogLinearNoise()(tau))
    torch.testing.assert_close(weight, 1 / tau)


def test_the_two_clocks_meet():
    tau = torch.tensor([0.1, 0.5, 1.0], dtype=torch.float64)
    kept = torch.exp(-corruption.LogLinearNoise()(tau)[0])
    torch.testing.assert_close(kept, 1 - (1 - corruption.NOISE_EPS) * tau)
    torch.testing.assert_close(torch.exp(-corruption.sigma_from_kept(kept)), kept)


def test_importance_times_have_uniform_log_move_chance():
    noise = corruption.LogLinearNoise()
    u = torch.linspace(0, 1, 11, dtype=torch.float64)
    sigma, _ = noise(noise.importance_times(u))
    steps = corruption.log_move_chance(sigma).diff()
    torch.testing.assert_close(steps, steps[:1].expand_as(steps), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("num_steps", [1, 2, 7, 128])
def test_paper_grid_reveals_one_over_what_is_left(num_steps):
    reveal = corruption.reveal_probabilities(num_steps, eps=0.0)
    assert reveal == pytest.approx([1 / (num_steps - j) for j in range(num_steps)])


@pytest.mark.parametrize("num_steps", [1, 5, 32])
def test_mdlm_grid_leaves_eps(num_steps):
    stays = 1.0
    for p in corruption.reveal_probabilities(num_steps, eps=1e-5):
        stays *= 1 - p
    assert stays == pytest.approx(1e-5, rel=1e-9)


def test_two_times_and_reveal():
    torch.manual_seed(0)
    t, s = corruption.draw_two_times(10_000, "cpu", t_max=0.95)
    assert (t < s).all() and t.max() <= 0.95 and s.max() <= 1
    p = corruption.reveal_chance(t, s)
    assert abs(p.mean().item() - 0.5) < 0.02  # p is uniform on [0, 1] whatever t is
    xt = torch.tensor([[9, 1, 9]])
    x1 = torch.tensor([[4, 1, 5]])
    assert torch.equal(corruption.reveal_tokens(xt, x1, torch.ones(1, 1), 9), x1)
    assert torch.equal(corruption.reveal_tokens(xt, x1, torch.zeros(1, 1), 9), xt)

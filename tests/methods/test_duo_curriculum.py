"""The curriculum: its signal, its schedule, and soft tokens with and without their tail."""

from __future__ import annotations

import math

import pytest
import torch

from lkf_plugin.methods import duo_latent
from lkf_plugin.methods.denoiser import mix_embeddings
from lkf_plugin.methods.duo_curriculum import Curriculum, argmax_signal, gamma_of_signal
from tests.golden_arrays import load

K_OF = {"bert-base-uncased": 30522, "gpt2": 50257}


@pytest.mark.parametrize("tokenizer", K_OF)
def test_chance_of_the_argmax_is_the_originals(tokenizer):
    a = load(f"duo/integral_{tokenizer}.npz")
    K = int(a["vocab_size"])
    alpha, _ = argmax_signal(a["gamma"], K)
    torch.testing.assert_close((alpha * (K - 1) + 1) / K, a["pt"], rtol=0, atol=4e-6)
    torch.testing.assert_close(alpha, a["alpha_usdm"], rtol=0, atol=4e-6)


@pytest.mark.parametrize("tokenizer", K_OF)
def test_curriculum_signal_is_the_originals(tokenizer):
    """They read a table of 100,000 points and take differences; we integrate."""
    a = load(f"duo/curriculum_alpha_{tokenizer}.npz")
    curriculum = Curriculum(0, 1, -3, -3, float(a["gamma_min"]), float(a["gamma_max"]))
    gamma, alpha, dalpha = curriculum.signal(a["t"], K_OF[tokenizer])
    torch.testing.assert_close(gamma.float(), a["gamma"], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(alpha, a["alpha"], rtol=0, atol=5e-5)
    torch.testing.assert_close(dalpha, a["dalpha"], rtol=3e-3, atol=0)


def test_signal_is_the_originals_series():
    a = load("duo/series_alpha_v16.npz")
    curriculum = Curriculum(0, 1, -3, -3, float(a["gamma_min"]), float(a["gamma_max"]))
    alpha, slope = argmax_signal(a["gamma"], 16)
    torch.testing.assert_close(alpha, a["alpha"], rtol=0, atol=1e-9)
    span = curriculum.gamma_max - curriculum.gamma_min
    torch.testing.assert_close(slope * span, a["dalpha"], rtol=0, atol=1e-9)


def test_slope_is_the_derivative():
    gamma = torch.linspace(-5, 2, 15, dtype=torch.float64)
    h = 1e-4
    alpha = [argmax_signal(gamma + d, 88)[0] for d in (-h, h)]
    slope = argmax_signal(gamma, 88)[1]
    torch.testing.assert_close(slope, (alpha[1] - alpha[0]) / (2 * h), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("alpha", (0.95, 0.05))
def test_range_of_gamma_from_the_signal(alpha):
    gamma = gamma_of_signal(alpha, 88)
    assert argmax_signal(torch.tensor([gamma]), 88)[0].item() == pytest.approx(alpha, abs=1e-6)


def test_temperature_schedule_is_the_originals():
    a = load("duo/gumbel_tau_inverse.npz")
    start, end = int(a["curriculum_start"]), int(a["curriculum_end"])
    curriculum = Curriculum(start, end, float(a["start"]), float(a["end"]), -3.5, -1.75)
    for step, wanted in zip(a["step"].tolist(), a["tau_inverse"].tolist(), strict=True):
        assert 10 ** -curriculum.tau_log10(step) == pytest.approx(wanted, rel=1e-6)
        assert curriculum.active(step) == (step < end)


def test_latent_is_the_originals():
    a = load("duo/gaussian_latent.npz")
    gamma = a["gamma"][:, None].expand(a["x0"].shape)
    w = duo_latent.gaussian_latent(a["x0"], gamma, a["epsilon"])
    torch.testing.assert_close(w, a["w_t"], rtol=1e-6, atol=1e-6)
    assert torch.equal(w.argmax(-1), a["argmax"])
    soft = duo_latent.soften(w, 1 / float(a["tau_inverse"]))
    torch.testing.assert_close(soft, a["soft"], rtol=1e-4, atol=1e-6)


def test_argmax_of_both_latents_has_the_signal():
    """Chance of the clean token, and of any other, over many rows."""
    K, rows = 500, 20_000
    x0 = torch.full((rows,), 17)
    gamma = torch.full((rows,), -2.4, dtype=torch.float64)
    alpha = argmax_signal(gamma[:1], K)[0].item()
    wins = alpha + (1 - alpha) / K
    torch.manual_seed(0)
    for soft in (
        duo_latent.dense_latent(x0, gamma.float(), K, 1e-3),
        duo_latent.top_latent(x0, gamma, K, 1e-3, 16),
    ):
        rate = (soft.hard_N == 17).double().mean().item()
        assert abs(rate - wins) < 4 * math.sqrt(wins * (1 - wins) / rows)
        others = soft.hard_N[soft.hard_N != 17]
        assert others.unique().numel() > 0.9 * (K - 1)
        assert abs(others.double().mean().item() - (K - 1) / 2) < 4 * K / math.sqrt(12 * rows)


def test_cut_tail_weighs_nothing():
    """Entropy and largest weight of the soft tokens agree with those of all columns."""
    K, rows, tau = 2000, 4000, 1e-2
    x0 = torch.randint(K, (rows,))
    gamma = torch.full((rows,), -2.0, dtype=torch.float64)
    torch.manual_seed(0)
    means = []
    for soft in (
        duo_latent.dense_latent(x0, gamma.float(), K, tau),
        duo_latent.top_latent(x0, gamma, K, tau, 32),
    ):
        weight = soft.weight_NC.double()
        entropy = -torch.special.xlogy(weight, weight).sum(-1)
        means.append((weight.amax(-1).mean().item(), entropy.mean().item()))
        assert (weight.sum(-1) - 1).abs().max() < 1e-5
    assert means[0] == pytest.approx(means[1], abs=0.02)
    tail = duo_latent.top_latent(x0, gamma, K, tau, 32).weight_NC[:, -1].max().item()
    assert tail * K < 1e-3


def test_order_statistics_have_the_law_of_sorted_gaussians():
    torch.manual_seed(0)
    drawn = duo_latent.largest_gaussians(20_000, 60, 5, torch.device("cpu"))
    sorted_ = torch.randn(20_000, 60, dtype=torch.float64).topk(5).values
    error = 4 * (drawn.var(0) + sorted_.var(0)).div(20_000).sqrt()
    assert ((drawn.mean(0) - sorted_.mean(0)).abs() < error).all()
    torch.testing.assert_close(drawn.std(0), sorted_.std(0), rtol=0.03, atol=0)
    assert (drawn.diff(dim=-1) <= 0).all()


def test_distinct_integers_are_distinct_and_uniform():
    torch.manual_seed(0)
    drawn = duo_latent.distinct_integers(30_000, 12, 4, torch.device("cpu"))
    assert (drawn.sort(-1).values.diff(dim=-1) > 0).all()
    share = torch.bincount(drawn[:, -1], minlength=12) / 30_000
    assert (share - 1 / 12).abs().max() < 4 * math.sqrt(1 / 12 / 30_000)


def test_mixed_embeddings_agree_with_all_columns():
    torch.manual_seed(0)
    table = torch.randn(50, 6, dtype=torch.float64, requires_grad=True)
    soft = duo_latent.top_latent(
        torch.randint(50, (9,)), torch.zeros(9, dtype=torch.float64), 50, 0.1, 7
    )
    dense = torch.zeros(9, 50).scatter(-1, soft.id_NC, soft.weight_NC)
    whole = duo_latent.SoftTokens(None, dense, soft.hard_N)
    mine, wanted = mix_embeddings(soft, table), mix_embeddings(whole, table)
    torch.testing.assert_close(mine, wanted, rtol=1e-12, atol=1e-12)
    grads = [torch.autograd.grad((m**2).sum(), table)[0] for m in (mine, wanted)]
    torch.testing.assert_close(*grads, rtol=1e-12, atol=1e-12)

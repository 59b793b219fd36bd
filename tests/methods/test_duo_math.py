"""DUO's mathematics against arrays of the original code, and the laws it must obey."""

from __future__ import annotations

import pytest
import torch

from lkf_plugin.corruption import LogLinearNoise
from lkf_plugin.evaluate.diversity import sequence_entropy
from lkf_plugin.host.ancestral import sample_categorical
from lkf_plugin.methods import duo_math
from lkf_plugin.methods.duo_sampler import run_chain
from tests.golden_arrays import DECIDED, ClosestRace, load
from tests.methods.tables import duo_table


def integrand_of(a, logp):
    shape = a["xt"].shape
    alpha, dalpha = a["alpha"].expand(shape), a["dalpha"].expand(shape)
    return duo_math.nelbo_integrand(logp, a["xt"], a["x0"], alpha, dalpha)


def test_integrand_is_the_original_in_float64():
    a = load("duo/nll_f64.npz")
    torch.testing.assert_close(
        integrand_of(a, a["log_x_theta"]), a["nll_per_token"], rtol=1e-12, atol=1e-12
    )
    assert integrand_of(a, a["log_x_theta_exact"]).abs().max() < 1e-10


def test_float32_is_closer_to_float64_than_the_original_is():
    """The same numbers in float32: the original's own rounding is the larger one."""
    a = load("duo/nll_f32.npz")
    wide = {k: v.double() if v.is_floating_point() else v for k, v in a.items()}
    exact = integrand_of(wide, wide["log_x_theta"])
    mine = (integrand_of(a, a["log_x_theta"]) - exact).abs().max()
    theirs = (a["nll_per_token"] - exact).abs().max()
    assert mine < 1e-5 and mine <= 2 * theirs


def plain_integrand(p, i, x0, alpha, dalpha):
    """The bound as the paper writes it, term by term."""
    K = p.numel()
    clean = torch.full((K,), 1 - alpha, dtype=torch.float64)
    clean[x0] += K * alpha
    model = K * alpha * p + 1 - alpha
    sum_j = (clean / clean[i] * torch.log(model[i] * clean / (model * clean[i]))).sum()
    return dalpha / (K * alpha) * (K / clean[i] - K / model[i] - sum_j)


@pytest.mark.parametrize("moved", (False, True))
@pytest.mark.parametrize("alpha", (0.999, 0.5, 0.002))
def test_integrand_is_the_papers_sum(alpha, moved):
    torch.manual_seed(1)
    p = torch.softmax(3 * torch.randn(11, dtype=torch.float64), -1)
    x0, xt = 4, 7 if moved else 4
    wanted = plain_integrand(p, xt, x0, alpha, -0.9)
    columns = (torch.tensor([v]) for v in (xt, x0))
    given = (torch.tensor([v], dtype=torch.float64) for v in (alpha, -0.9))
    mine = duo_math.nelbo_integrand(p.log()[None], *columns, *given)
    torch.testing.assert_close(mine[0], wanted, rtol=1e-10, atol=1e-12)
    assert mine >= 0


def test_nelbo_is_zero_at_the_truth_and_positive_elsewhere():
    K = 9
    x0 = torch.arange(K)
    alpha, dalpha = torch.full((K,), 0.3).double(), torch.full((K,), -1.0).double()
    truth = torch.full((K, K), -1e6, dtype=torch.float64).scatter(-1, x0[:, None], 0.0)
    for xt in (x0, (x0 + 2) % K):
        assert duo_math.nelbo_integrand(truth, xt, x0, alpha, dalpha).abs().max() < 1e-13
        off = torch.log_softmax(truth.clamp_min(-3), -1)
        assert duo_math.nelbo_integrand(off, xt, x0, alpha, dalpha).min() > 1e-3


def forward_law(p_BLK, alpha_B):
    """Law of a token drawn from p and then diffused to signal alpha."""
    alpha = alpha_B[:, None, None]
    return alpha * p_BLK + (1 - alpha) / p_BLK.shape[-1]


def test_posterior_is_the_original_and_sums_to_one():
    a = load("duo/posterior.npz")
    alpha_s, alpha_t = a["alpha_s"][:, 0], a["alpha_t"][:, 0]
    mine = duo_math.posterior(a["p_x0"], a["xt"], alpha_s, alpha_t)
    torch.testing.assert_close(mine, a["posterior"], rtol=1e-13, atol=1e-15)
    assert (mine.sum(-1) - 1).abs().max() < 1e-14
    to_clean = duo_math.posterior(a["p_x0"], a["xt"], torch.ones(4), alpha_t)
    torch.testing.assert_close(to_clean, a["posterior_to_0"], rtol=1e-13, atol=1e-15)
    law = forward_law(a["p_x0"], alpha_t)
    assert (law.sum(-1) - 1).abs().max() < 1e-14
    kappa = float(a["psi_kappa"])
    mixed = kappa * mine + (1 - kappa) * forward_law(to_clean, alpha_s)
    torch.testing.assert_close(mixed, a["psi_mix"], rtol=1e-6, atol=1e-8)


def test_posterior_is_bayes_rule():
    K, alpha_s, alpha_t = 5, 0.6, 0.2
    for x0 in range(K):
        onehot = torch.zeros(K, dtype=torch.float64)
        onehot[x0] = 1
        prior_s = alpha_s * onehot + (1 - alpha_s) / K
        ratio = alpha_t / alpha_s
        for xt in range(K):
            likelihood = torch.full((K,), (1 - ratio) / K, dtype=torch.float64)
            likelihood[xt] += ratio
            wanted = prior_s * likelihood / (prior_s * likelihood).sum()
            signals = (torch.tensor([a], dtype=torch.float64) for a in (alpha_s, alpha_t))
            mine = duo_math.posterior(onehot[None, None], torch.tensor([[xt]]), *signals)
            torch.testing.assert_close(mine[0, 0], wanted, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("last_pass", ("greedy", "ancestral", "none"))
@pytest.mark.parametrize("num_steps", (1, 2, 4, 8))
def test_seeded_chains_are_the_originals(last_pass, num_steps, monkeypatch):
    a = load("duo/generate_samples.npz")
    race = ClosestRace(monkeypatch)
    torch.manual_seed(200 + num_steps)
    start = torch.randint(0, int(a["vocab"]), (5, 6))
    table = duo_table(a["W"])
    x = run_chain(table, LogLinearNoise(), start, num_steps, 1e-5, last_pass, sample_categorical)
    assert torch.equal(x, a[f"{last_pass}_{num_steps}"])
    assert race.margin > DECIDED


def test_entropy_of_a_sequence_is_the_originals():
    a = load("duo/sample_entropy.npz")
    mean = sequence_entropy(a["tokens"].tolist()).value
    assert mean == pytest.approx(float(a["mean_entropy_nats"]), abs=1e-6)

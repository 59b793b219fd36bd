"""SEDD's mathematics against arrays of the original code, and the laws it must obey."""

from __future__ import annotations

import pytest
import torch

from lkf_plugin.corruption import LogLinearNoise
from lkf_plugin.host.ancestral import sample_categorical
from lkf_plugin.methods import sedd_math
from lkf_plugin.methods.sedd_sampler import run_chain
from tests.golden_arrays import DECIDED, ClosestRace, load
from tests.methods.tables import score_entropy, sedd_table

MASK = 7
PRECISIONS = ("f32", "f64")


def close(actual: torch.Tensor, wanted: torch.Tensor, rtol: float = 1e-5) -> None:
    torch.testing.assert_close(actual, wanted.to(actual), rtol=rtol, atol=rtol)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_score_entropy_is_the_original(precision):
    a = load(f"sedd/absorbing_{precision}.npz")
    entropy = score_entropy(a["log_score"], a["sigma"], a["xt"], a["x0"], MASK)
    close(entropy, a["score_entropy"])
    close((a["dsigma"][:, None] * entropy).sum(1), a["weighted_loss_per_seq"])
    exact = score_entropy(a["log_score_exact"], a["sigma"], a["xt"], a["x0"], MASK)
    assert exact.abs().max() < (4e-7 if precision == "f32" else 1e-14)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_loss_is_the_original(precision):
    a = load(f"sedd/loss_fn_{precision}.npz")
    sigma, dsigma = LogLinearNoise()(a["t"])
    entropy = score_entropy(a["log_score"], sigma, a["xt"], a["x0"], MASK)
    close((dsigma[:, None] * entropy).sum(1), a["loss_per_seq"], rtol=2e-5)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_reverse_kernels_are_the_original(precision):
    a = load(f"sedd/absorbing_{precision}.npz")
    score, xt, dsig = a["log_score"].exp(), a["xt"], a["dsig"]
    close(sedd_math.staggered_score(score, dsig, MASK), a["staggered_score"], 1e-6)
    close(sedd_math.transition_to(xt, dsig, MASK, 8), a["transp_transition"], 1e-6)
    close(sedd_math.analytic_weights(a["log_score"], xt, dsig, MASK), a["analytic_probs"], 1e-6)
    close(sedd_math.reverse_rate(a["log_score"], xt, MASK), a["reverse_rate"], 1e-6)


def test_the_mask_may_lie_inside_the_vocabulary():
    a = load("duo/absorbing_sedd.npz")
    mask, alpha = int(a["mask_index"]), a["alpha"][:, 0]
    sigma = -alpha.log()
    raw = sedd_math.masked_log_scores(a["raw_logits"], sigma[:, None].expand(a["xt"].shape))
    log_score = sedd_math.pin_own_token(raw, a["xt"])
    close(log_score, a["processed"], 1e-12)
    entropy = score_entropy(log_score, sigma, a["xt"], a["x0"], mask)
    # the original holds the entropy in float32 whatever the input
    close(entropy * (-a["dalpha"] / a["alpha"]), a["nll_per_token"], 1e-6)


def test_score_r_p_gives_the_subs_loss():
    """With s = r p the score entropy is r (-log p_x0): no constant is left over."""
    torch.manual_seed(0)
    sigma = torch.tensor([0.02, 0.7, 5.0], dtype=torch.float64)
    p = torch.rand(3, 6, dtype=torch.float64)
    p[:, 2] = 0
    p = p / p.sum(-1, keepdim=True)
    r = 1 / torch.expm1(sigma)
    x0 = torch.tensor([0, 5, 3])
    log_score = (r[:, None] * p).log()
    entropy = sedd_math.masked_score_entropy(log_score, sigma, x0, mask_index=2)
    subs = -p.gather(-1, x0[:, None]).squeeze(-1).log()
    close(entropy, r * subs, 1e-12)


@pytest.mark.parametrize("mask", (0, 2, 3))
@pytest.mark.parametrize("num_steps", (1, 2, 5))
def test_analytic_sampler_is_exact_for_one_token(mask, num_steps):
    """The law after any number of steps is p0, by multiplying out the chain's probabilities."""
    noise = LogLinearNoise().double()
    p0 = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    words = [j for j in range(4) if j != mask]
    eps = 1e-5
    times = torch.linspace(1, eps, num_steps + 1, dtype=torch.float64)
    xt = torch.full((1, 1), mask)

    def log_score(sigma):
        score = torch.ones(1, 1, 4, dtype=torch.float64)
        score[0, 0, words] = p0 / torch.expm1(sigma)
        return score.log()

    law = torch.zeros(4, dtype=torch.float64)
    masked = torch.ones((), dtype=torch.float64)
    for i in range(num_steps + 1):
        sigma = noise(times[i])[0]
        last = i == num_steps
        less = torch.zeros(()) if last else noise(times[i + 1])[0]
        weights = sedd_math.analytic_weights(log_score(sigma), xt, (sigma - less)[None], mask)
        if last:
            weights[..., mask] = 0
        chance = weights[0, 0] / weights.sum()
        law += masked * chance.index_fill(0, torch.tensor(mask), 0.0)
        masked = masked * chance[mask]
    close(law[words], p0, 1e-12)
    golden = load("sedd/toy_analytic_exact.npz")
    close(golden["final_marginal"][:, 1:], p0.expand(4, 3), 1e-6)


def test_analytic_steps_are_the_originals_step_by_step():
    golden = load("sedd/toy_analytic_exact.npz")
    noise, mask = LogLinearNoise().double(), 3
    for n, _, t, *wanted in golden["mask_step_probs"].tolist():
        t0 = torch.tensor([t], dtype=torch.float64)
        dt = (1 - 1e-5) / n
        sigma, less = noise(t0)[0], noise(t0 - dt)[0]
        score = torch.cat((golden["p0"] / torch.expm1(sigma), torch.ones(1)))
        xt = torch.full((1, 1), mask)
        weights = sedd_math.analytic_weights(score.log()[None, None], xt, sigma - less, mask)
        close(weights[0, 0] / weights.sum(), torch.tensor(wanted, dtype=torch.float64), 1e-6)


@pytest.mark.parametrize("predictor", ("analytic", "euler"))
@pytest.mark.parametrize("num_steps", (1, 2, 4, 8))
def test_seeded_chains_are_the_originals(predictor, num_steps, monkeypatch):
    a = load("sedd/pc_sampler.npz")
    race = ClosestRace(monkeypatch)
    torch.manual_seed(100 + num_steps)
    x = run_chain(
        sedd_table(a["W"], MASK),
        LogLinearNoise(),
        torch.full((5, 6), MASK),
        num_steps,
        1e-5,
        predictor,
        MASK,
        sample_categorical,
    )
    assert torch.equal(x, a[f"{predictor}_{num_steps}"])
    assert race.margin > DECIDED


def test_categorical_draw_is_the_original(monkeypatch):
    a = load("sedd/sample_categorical.npz")
    monkeypatch.setattr(torch, "rand_like", lambda weights: a["uniform"])
    race = ClosestRace(monkeypatch)
    assert torch.equal(sample_categorical(a["probs"]), a["sample"])
    assert race.margin > DECIDED

"""Two-phase training against float64 autograd of the dense objective."""

from __future__ import annotations

import pytest
import torch

from lkf_plugin.backbone.dropout import PairDraw
from lkf_plugin.objective import two_phase
from lkf_plugin.objective.components import (
    ComponentScores,
    HeadSettings,
    component_scores,
    counted_places,
    places_of_components,
    spread,
)
from lkf_plugin.objective.likelihood import mixture_objective
from lkf_plugin.objective.two_phase import BackwardPlan, group_weights, two_phase_objective
from lkf_plugin.token_head.logprob import token_logprob
from tests.tiny import tiny_backbone

MASK, M = 2, 5
HEAD = HeadSettings("chunked", 7)


def problem(dropout=0.0, batch=6):
    model = tiny_backbone(num_components=M, dropout=dropout, n_blocks=3, latent_blocks=2)
    model.train()
    torch.manual_seed(1)
    x0 = torch.randint(3, 7, (batch, 8))
    xt = torch.where(torch.rand(batch, 8) < 0.6, MASK, x0)
    sigma = torch.rand(batch, dtype=torch.float64) + 0.1
    weight = torch.rand(batch, dtype=torch.float64) + 0.5
    return model, xt, x0, sigma, weight


def dense(model, xt, x0, sigma, weight):
    """The same objective with every pair in the graph, dropout drawn in the same way."""
    state = model.encode(xt, sigma)
    logw = model.route(state)
    draw = PairDraw.fresh(len(xt))
    rows = torch.arange(len(xt)).repeat_interleave(M)
    at = places_of_components(counted_places(xt == MASK), M)
    hidden = model.branch_hidden(state, at, rows, torch.arange(M).repeat(len(xt)), draw)
    target = x0.repeat_interleave(M, 0)[at]
    logp = token_logprob(hidden, model.head_weight, model.head_bias, target, MASK, "full")
    scores = ComponentScores(logw, spread(logp, at, xt.shape, M))
    return mixture_objective(model.structure, scores, weight, xt == MASK)


def gradient(model, total):
    parameters = [p for p in model.parameters() if p.requires_grad]
    grads = torch.autograd.grad(total, parameters, allow_unused=True)
    return torch.cat([g.flatten() for g in grads if g is not None])


def two_phase_gradient(model, plan, *batch):
    xt, x0, sigma, weight = batch
    torch.manual_seed(7)
    _, objective = two_phase_objective(model, xt, x0, xt == MASK, sigma, weight, HEAD, plan)
    return objective, gradient(model, objective.total)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_threshold_zero_is_exact_up_to_rounding(dropout):
    model, *batch = problem(dropout)
    torch.manual_seed(7)
    expected = dense(model, *batch)
    exact = gradient(model, expected.total)
    objective, found = two_phase_gradient(model, BackwardPlan(), *batch)
    torch.testing.assert_close(objective.total, expected.total)
    torch.testing.assert_close(objective.gamma_BGM, expected.gamma_BGM)
    assert (found - exact).norm() <= 1e-12 * exact.norm()


@pytest.mark.parametrize(("threshold", "bound"), [(1e-3, 1e-3), (1e-2, 5e-2)])
def test_error_is_of_the_order_of_the_threshold(threshold, bound):
    model, *batch = problem(batch=64)
    exact = gradient(model, dense(model, *batch).total)
    objective, found = two_phase_gradient(model, BackwardPlan(threshold=threshold), *batch)
    left_out = torch.where(objective.gamma_BGM <= threshold, objective.gamma_BGM, 0.0).sum(-1)
    assert left_out.max() <= threshold * (M - 1)
    assert (objective.gamma_BGM <= threshold).any(), "the case must leave something out"
    error = (found - exact).norm() / exact.norm()
    assert 1e-9 < error < bound


def test_drawn_components_are_unbiased(monkeypatch):
    """Sum over all draws of gamma(draw) times its gradient is the exact gradient (S = 1)."""
    model, *batch = problem()
    batch = [x[:1] for x in batch]
    expected = dense(model, *batch)
    exact, gamma_M = gradient(model, expected.total), expected.gamma_BGM[0, 0]
    mean = torch.zeros_like(exact)
    for k in range(M):
        monkeypatch.setattr(
            two_phase,
            "group_weights",
            lambda *_, k=k: torch.eye(M).double()[None, k : k + 1],
        )
        mean += gamma_M[k] * two_phase_gradient(model, BackwardPlan(drawn=1), *batch)[1]
    assert (mean - exact).norm() <= 1e-12 * exact.norm()


def test_coefficients():
    gamma = torch.tensor([[0.7, 0.2995, 0.0005]]).expand(20_000, -1)
    kept = group_weights(gamma[:, None], BackwardPlan(threshold=1e-3))[:, 0]
    assert torch.equal(kept[0], torch.tensor([0.7, 0.2995, 0.0]))
    torch.manual_seed(0)
    drawn = group_weights(gamma[:, None], BackwardPlan(drawn=2))[:, 0]
    assert set(drawn.unique().tolist()) <= {0.0, 0.5, 1.0}
    assert torch.equal(drawn.sum(-1), torch.ones(20_000))
    assert (drawn.mean(0) - gamma[0]).abs().max() < 0.01


def test_keeping_the_large_ones_and_drawing_from_the_rest():
    gamma = torch.tensor([[0.6, 0.25, 0.1, 0.05]]).expand(20_000, -1)
    torch.manual_seed(0)
    found = group_weights(gamma[:, None], BackwardPlan(drawn=1, keep_above=0.5))[:, 0]
    assert (found[:, 0] == gamma[0, 0]).all()
    assert ((found[:, 1:] > 0).sum(-1) == 1).all()
    torch.testing.assert_close(found.sum(-1), torch.ones(20_000))
    assert (found.mean(0) - gamma[0]).abs().max() < 0.01
    certain = torch.tensor([[0.0, 1.0, 0.0]])  # nothing is left to draw from
    found = group_weights(certain[:, None], BackwardPlan(drawn=2, keep_above=0.5))[:, 0]
    assert torch.equal(found, certain)


def test_a_component_of_no_responsibility_is_never_drawn():
    gamma = torch.tensor([[0.0, 0.5, 0.0, 0.5, 0.0]]).expand(5_000, -1)
    torch.manual_seed(0)
    drawn = group_weights(gamma[:, None], BackwardPlan(drawn=3))[:, 0]
    assert (drawn[:, [0, 2, 4]] == 0).all() and (drawn[:, [1, 3]].mean(0) > 0.45).all()


@pytest.mark.parametrize("plan", [BackwardPlan(), BackwardPlan(drawn=2)])
@pytest.mark.parametrize("step", [1, 2, 3, 5])
def test_the_first_pass_may_take_any_number_of_components_at_once(plan, step, monkeypatch):
    model, *batch = problem(0.3)
    together, exact = two_phase_gradient(model, plan, *batch)
    monkeypatch.setattr(two_phase, "components_at_once", lambda tokens, device: step)
    apart, found = two_phase_gradient(model, plan, *batch)
    torch.testing.assert_close(apart.gamma_BGM, together.gamma_BGM, rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(found, exact, rtol=1e-10, atol=1e-12)


def test_accumulated_gradients_are_the_sum_over_micro_batches():
    model, xt, x0, sigma, weight = problem()
    halves = [[x[part] for x in (xt, x0, sigma, weight)] for part in (slice(2), slice(2, 6))]
    _, whole = two_phase_gradient(model, BackwardPlan(), xt, x0, sigma, weight)
    for half in halves:
        a, b, c, d = half
        _, objective = two_phase_objective(model, a, b, a == MASK, c, d, HEAD, BackwardPlan())
        objective.total.backward()
    kept = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    torch.testing.assert_close(torch.cat(kept), whole, rtol=1e-10, atol=1e-12)


def test_under_bf16_autocast_both_passes_see_the_same_numbers():
    """Responsibilities stay float32 sums, and the gradient is the dense one's up to bf16."""
    model, xt, x0, sigma, weight = problem(0.3)
    model.float()
    batch = (xt, x0, sigma.float(), weight.float())
    with torch.autocast("cpu", torch.bfloat16):
        torch.manual_seed(7)
        expected = dense(model, *batch)
        objective, found = two_phase_gradient(model, BackwardPlan(), *batch)
        exact = gradient(model, expected.total)
    assert objective.gamma_BGM.dtype == torch.float32
    torch.testing.assert_close(objective.total, expected.total, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(objective.gamma_BGM, expected.gamma_BGM, rtol=0, atol=2e-2)
    assert (found - exact).norm() < 3e-2 * exact.norm()


def test_checkpointed_blocks_give_the_same_gradient():
    model, *batch = problem(0.3)
    _, plain = two_phase_gradient(model, BackwardPlan(drawn=2), *batch)
    model.trunk.activation_checkpointing = True
    _, again = two_phase_gradient(model, BackwardPlan(drawn=2), *batch)
    assert torch.equal(plain, again)


def test_one_component_needs_one_pass():
    model, xt, x0, sigma, weight = problem()
    single = tiny_backbone(num_components=1, dropout=0.3, n_blocks=3, latent_blocks=2).train()
    results = []
    for known in (True, False):
        torch.manual_seed(3)
        args = (single, xt, x0, xt == MASK, sigma)
        if known:
            scores, objective = two_phase_objective(*args, weight, HEAD, BackwardPlan())
        else:
            scores = component_scores(*args, HeadSettings("mdlm"))
            objective = mixture_objective(model.structure, scores, weight, xt == MASK)
        results.append((scores.logp_BML.detach(), objective.total.detach(), objective.nll_B))
        results[-1] += (gradient(single, objective.total),)
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_rows_without_counted_positions():
    model, xt, x0, sigma, weight = problem()
    xt[0], xt[3] = x0[0], x0[3]
    exact = gradient(model, dense(model, xt, x0, sigma, weight).total)
    _, found = two_phase_gradient(model, BackwardPlan(), xt, x0, sigma, weight)
    assert (found - exact).norm() <= 1e-12 * exact.norm()
    objective, found = two_phase_gradient(model, BackwardPlan(drawn=2), x0, x0, sigma, weight)
    assert objective.total.abs() < 1e-12 and torch.isfinite(found).all()


@pytest.mark.slow
def test_compiled_blocks():
    """torch.compile of every block: same objective and gradient, any number of pairs."""
    model, *batch = problem(0.3)
    model.float()
    batch = [x.float() if x.is_floating_point() else x for x in batch]
    model.train()
    plain = tiny_backbone(num_components=M, dropout=0.3, n_blocks=3, latent_blocks=2).float()
    plain.load_state_dict(model.state_dict())
    plain.train()
    for block in plain.trunk.blocks[: plain.first_latent]:
        block.dropout = 0.0  # its draws are torch's own, which a compiled graph draws otherwise
    for block in model.trunk.blocks[: model.first_latent]:
        block.dropout = 0.0
    for block in model.trunk.blocks:
        block.compile(dynamic=True)
    for plan in (BackwardPlan(), BackwardPlan(drawn=1), BackwardPlan(drawn=2)):
        expected, exact = two_phase_gradient(plain, plan, *batch)
        objective, found = two_phase_gradient(model, plan, *batch)
        torch.testing.assert_close(objective.gamma_BGM, expected.gamma_BGM, rtol=1e-4, atol=1e-5)
        assert (found - exact).norm() < 1e-4 * exact.norm()
    assert list(model.state_dict()) == list(plain.state_dict())

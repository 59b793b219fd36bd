"""Two-phase training against float64 autograd of the dense objective."""

from __future__ import annotations

import pytest
import torch

from lkf_plugin.backbone.dropout import RowDraw
from lkf_plugin.objective import two_phase
from lkf_plugin.objective.components import (
    ComponentScores,
    HeadSettings,
    branch_token_logprobs,
)
from lkf_plugin.objective.mixture import mixture_objective
from lkf_plugin.objective.two_phase import BackwardPlan, pair_coefficients, two_phase_objective
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
    rows = [x.repeat_interleave(M, 0) for x in (xt, x0, xt == MASK)]
    branch = model.branch(state, draw=RowDraw(len(xt) * M))
    logp = branch_token_logprobs(model, branch, *rows, HEAD, MASK).unflatten(0, (-1, M))
    return mixture_objective(ComponentScores(logw, logp), weight, xt == MASK)


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
    torch.testing.assert_close(objective.gamma_BM, expected.gamma_BM)
    assert (found - exact).norm() <= 1e-12 * exact.norm()


@pytest.mark.parametrize(("threshold", "bound"), [(1e-3, 1e-3), (1e-2, 5e-2)])
def test_error_is_of_the_order_of_the_threshold(threshold, bound):
    model, *batch = problem(batch=64)
    exact = gradient(model, dense(model, *batch).total)
    objective, found = two_phase_gradient(model, BackwardPlan(threshold=threshold), *batch)
    left_out = torch.where(objective.gamma_BM <= threshold, objective.gamma_BM, 0.0).sum(-1)
    assert left_out.max() <= threshold * (M - 1)
    assert (objective.gamma_BM <= threshold).any(), "the case must leave something out"
    error = (found - exact).norm() / exact.norm()
    assert 1e-9 < error < bound


def test_drawn_components_are_unbiased(monkeypatch):
    """Sum over all draws of gamma(draw) times its gradient is the exact gradient (S = 1)."""
    model, *batch = problem()
    batch = [x[:1] for x in batch]
    expected = dense(model, *batch)
    exact, gamma_M = gradient(model, expected.total), expected.gamma_BM[0]
    mean = torch.zeros_like(exact)
    for k in range(M):
        monkeypatch.setattr(
            two_phase, "pair_coefficients", lambda g, plan, k=k: torch.eye(M).double()[k : k + 1]
        )
        mean += gamma_M[k] * two_phase_gradient(model, BackwardPlan(drawn=1), *batch)[1]
    assert (mean - exact).norm() <= 1e-12 * exact.norm()


def test_coefficients():
    gamma = torch.tensor([[0.7, 0.2995, 0.0005]]).expand(20_000, -1)
    kept = pair_coefficients(gamma, BackwardPlan(threshold=1e-3))
    assert torch.equal(kept[0], torch.tensor([0.7, 0.2995, 0.0]))
    torch.manual_seed(0)
    drawn = pair_coefficients(gamma, BackwardPlan(drawn=2))
    assert set(drawn.unique().tolist()) <= {0.0, 0.5, 1.0}
    assert torch.equal(drawn.sum(-1), torch.ones(20_000))
    assert (drawn.mean(0) - gamma[0]).abs().max() < 0.01


def test_the_random_stream_after_the_objective_is_that_of_one_pass():
    model, xt, x0, sigma, weight = problem(0.3)
    torch.manual_seed(7)
    dense(model, xt, x0, sigma, weight)
    after_dense = torch.rand(1)
    torch.manual_seed(7)
    two_phase_objective(model, xt, x0, xt == MASK, sigma, weight, HEAD, BackwardPlan())
    assert torch.equal(torch.rand(1), after_dense)

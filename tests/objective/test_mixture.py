"""The mixture objective against enumeration, MDLM's golden loss, and its invariances."""

from __future__ import annotations

import itertools

import pytest
import torch

from lkf_plugin.corruption import nelbo_weight
from lkf_plugin.kernel import marginal_log_probs
from lkf_plugin.latents.sequence import Sequence, SequencePotentials
from lkf_plugin.objective.components import ComponentScores, HeadSettings, component_scores
from lkf_plugin.objective.likelihood import marginal_nll, mixture_objective
from lkf_plugin.subs import subs_log_probs
from tests.golden_arrays import SUBS_FILES, assert_matches, load
from tests.tiny import tiny_backbone

MASK = 3
HEADS = [HeadSettings("mdlm"), HeadSettings("full"), HeadSettings("chunked", 5)]


def brute_force_log_psi(model, xt, x0, sigma):
    """log sum_k w_k prod_i P_i^k by loops over components and positions, one sequence."""
    state = model.encode(xt[None], sigma[None])
    w = model.route(state).logw_BK.exp()[0]
    logits = model.logits(model.branch(state))
    total = 0.0
    for k in range(model.num_components):
        product = w[k]
        for i, token in enumerate(xt.tolist()):
            if token != MASK:
                continue
            scores = logits[k, i].clone()
            scores[MASK] = -torch.inf
            product = product * scores.softmax(-1)[x0[i]]
        total = total + product
    return torch.log(total)


@pytest.mark.parametrize("head", HEADS, ids=lambda h: h.backend)
@pytest.mark.parametrize("trunk", ["matched", "native"])
def test_against_brute_force_on_every_sequence(head, trunk):
    """V=3 words, L=3, M=2: every (x_0, mask) pair, and total probability one."""
    model = tiny_backbone(vocab_size=4, mask_index=MASK, num_components=2, trunk=trunk)
    words = torch.tensor(list(itertools.product(range(3), repeat=3)))
    sigma = torch.tensor(0.7, dtype=torch.float64)
    for keep in itertools.product([False, True], repeat=3):
        kept = torch.tensor(keep)
        visible = torch.tensor([1, 0, 2])
        targets = words[(words[:, kept] == visible[kept]).all(-1)]
        xt = torch.where(kept, visible, MASK).expand(len(targets), -1)
        scores = component_scores(model, xt, targets, xt == MASK, sigma.expand(len(targets)), head)
        weight = torch.linspace(0.5, 2, len(targets), dtype=torch.float64)
        objective = mixture_objective(model.structure, scores, weight, xt == MASK)
        expected = torch.stack(
            [brute_force_log_psi(model, a, b, sigma) for a, b in zip(xt, targets, strict=True)]
        )
        torch.testing.assert_close(objective.nll_B, -weight * expected)
        torch.testing.assert_close(objective.total, objective.nll_B.sum())
        assert expected.exp().sum().item() == pytest.approx(1.0)


@pytest.mark.parametrize("name", SUBS_FILES)
def test_one_component_is_mdlm_s_loss(name):
    g = load(name)
    mask = int(g["mask_index"])
    logp_BL = subs_log_probs(g["logits"], g["xt"], mask).gather(-1, g["x0"][..., None])[..., 0]
    counted = (g["xt"] == mask) & (g["attention_mask"] > 0)
    zeros_B1 = torch.zeros(4, 1, dtype=logp_BL.dtype)
    scores = ComponentScores(SequencePotentials(zeros_B1), logp_BL[:, None])
    weight = nelbo_weight(g["sigma"], g["dsigma"])
    loss = mixture_objective(Sequence(1), scores, weight, counted).total / g["attention_mask"].sum()
    assert_matches(loss, g["loss"], "loss")
    nlls = marginal_nll(Sequence(1), scores, weight, counted)
    assert_matches(nlls, g["nlls"] * g["attention_mask"], "nlls")


def test_gradient_is_the_responsibility_weighted_one():
    """d(-log Psi) = -sum_k gamma_k d(log w_k + ell_k), on every parameter."""
    model = tiny_backbone(vocab_size=4, mask_index=MASK, num_components=2)
    xt = torch.tensor([[MASK, 1, MASK], [MASK, MASK, MASK]])
    x0 = torch.tensor([[0, 1, 2], [2, 2, 0]])
    sigma = torch.tensor([0.4, 1.1], dtype=torch.float64)
    weight = torch.tensor([1.5, 0.7], dtype=torch.float64)
    parameters = [p for p in model.parameters() if p.requires_grad]
    scores = component_scores(model, xt, x0, xt == MASK, sigma, HeadSettings("full"))
    objective = mixture_objective(model.structure, scores, weight, xt == MASK)
    direct = torch.autograd.grad(objective.total, parameters, retain_graph=True, allow_unused=True)
    per_component = scores.potentials.logw_BK + scores.logp_BML.sum(-1)
    surrogate = -(weight[:, None] * objective.gamma_BGM[:, 0] * per_component).sum()
    by_identity = torch.autograd.grad(surrogate, parameters, allow_unused=True)
    for a, b in zip(direct, by_identity, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def test_permuting_components_changes_nothing():
    torch.manual_seed(0)
    logw = torch.log_softmax(torch.randn(4, 5, dtype=torch.float64), -1)
    logp = -torch.rand(4, 5, 6, dtype=torch.float64)
    counted = torch.rand(4, 6) < 0.6
    weight = torch.rand(4, dtype=torch.float64)
    order = torch.tensor([3, 0, 4, 1, 2])
    one = ComponentScores(SequencePotentials(logw), logp)
    other = ComponentScores(SequencePotentials(logw[:, order]), logp[:, order])
    a = mixture_objective(Sequence(5), one, weight, counted)
    b = mixture_objective(Sequence(5), other, weight, counted)
    torch.testing.assert_close(a.nll_B, b.nll_B)
    torch.testing.assert_close(a.gamma_BGM[..., order], b.gamma_BGM)
    torch.testing.assert_close(
        marginal_nll(Sequence(5), one, weight, counted),
        marginal_nll(Sequence(5), other, weight, counted),
    )


def test_padding_leaks_into_nothing():
    """What stands at uncounted positions moves neither loss nor responsibilities."""
    torch.manual_seed(0)
    logw = torch.log_softmax(torch.randn(2, 3), -1)
    logp = -5 * torch.rand(2, 3, 4)
    counted = torch.tensor([[True, True, False, False], [True, False, True, True]])
    weight = torch.ones(2)
    polluted = torch.where(counted[:, None], logp, -100 * torch.rand(2, 3, 4))
    p = SequencePotentials(logw)
    a = mixture_objective(Sequence(3), ComponentScores(p, logp), weight, counted)
    b = mixture_objective(Sequence(3), ComponentScores(p, polluted), weight, counted)
    assert torch.equal(a.nll_B, b.nll_B) and torch.equal(a.gamma_BGM, b.gamma_BGM)


def test_a_row_without_masks_has_loss_zero_and_finite_gradients():
    model = tiny_backbone(vocab_size=4, mask_index=MASK, num_components=2)
    xt = torch.tensor([[0, 1, 2]])
    sigma = torch.tensor([0.01], dtype=torch.float64)
    for head in HEADS:
        scores = component_scores(model, xt, xt, xt == MASK, sigma, head)
        total = mixture_objective(model.structure, scores, torch.tensor([100.0]), xt == MASK).total
        assert abs(total.item()) < 1e-12
        grads = torch.autograd.grad(
            total, [p for p in model.parameters() if p.requires_grad], allow_unused=True
        )
        assert all(torch.isfinite(g).all() for g in grads if g is not None)


def test_marginal_nelbo_against_enumeration():
    """E over every mask of the weighted marginal cross-entropy, L=2, from the full tensors."""
    model = tiny_backbone(vocab_size=4, mask_index=MASK, num_components=2)
    x0 = torch.tensor([1, 2])
    masks = torch.tensor(list(itertools.product([False, True], repeat=2)))
    xt = torch.where(masks, MASK, x0)
    sigma = torch.full((4,), 0.9, dtype=torch.float64)
    chance = 1 - torch.exp(-sigma[0])
    prob = torch.where(masks, chance, 1 - chance).prod(-1)
    scores = component_scores(model, xt, x0.expand(4, -1), masks, sigma, HeadSettings("chunked"))
    value = (prob[:, None] * marginal_nll(model.structure, scores, torch.ones(4), masks)).sum()
    state = model.encode(xt, sigma)
    logp = subs_log_probs(model.logits(model.branch(state)), xt.repeat_interleave(2, 0), MASK)
    marginal = marginal_log_probs(model.route(state).logw_BK, logp.unflatten(0, (4, 2)))
    picked = marginal.gather(-1, x0.expand(4, -1)[..., None])[..., 0]
    torch.testing.assert_close(value, -(prob[:, None] * picked * masks).sum())

"""Router, latent branch and MDLM's contract of the latent-kernel backbone."""

from __future__ import annotations

import pytest
import torch

from lkf_plugin.backbone import build_backbone
from lkf_plugin.backbone.stack import Places
from lkf_plugin.errors import UserError
from lkf_plugin.kernel import batch_router_entropy, marginal_log_probs
from lkf_plugin.subs import subs_log_probs
from tests.tiny import MODEL, tiny_backbone

X = torch.tensor([[2, 2, 0, 2, 5, 2], [1, 2, 2, 2, 2, 3]])
SIGMA = torch.tensor([0.3, 1.2], dtype=torch.float64)


@pytest.mark.parametrize("trunk", ["matched", "native"])
def test_branch_rows_are_the_same_alone_or_together(trunk):
    model = tiny_backbone(trunk=trunk)
    state = model.encode(X, SIGMA)
    together = model.branch(state)
    rows, components = torch.tensor([1, 0]), torch.tensor([2, 1])
    alone = model.branch(state, rows, components)
    pick = rows * model.num_components + components
    torch.testing.assert_close(alone.h_RLD, together.h_RLD[pick])
    hidden = model.branch_hidden(
        state, Places(torch.tensor([0, 1, 1]), torch.tensor([3, 0, 2])), rows, components
    )
    logits = hidden @ model.head_weight.T
    if model.head_bias is not None:
        logits = logits + model.head_bias
    every = model.logits(together)
    torch.testing.assert_close(logits, every[pick][[0, 1, 1], [3, 0, 2]])


@pytest.mark.parametrize("trunk", ["matched", "native"])
def test_forward_is_the_marginal_denoiser(trunk):
    model = tiny_backbone(trunk=trunk)
    state = model.encode(X, SIGMA)
    logits = model.logits(model.branch(state))
    logp = subs_log_probs(logits, X.repeat_interleave(3, 0), 2).unflatten(0, (2, 3))
    marginal = marginal_log_probs(model.route(state).logw_BK, logp)
    out = model(X, SIGMA)
    torch.testing.assert_close(out.exp(), marginal.exp())
    torch.testing.assert_close(out.exp().sum(-1), torch.ones(2, 6, dtype=torch.float64))
    assert (out[..., 2].exp() == 0).all()
    assert torch.equal(out.argmax(-1)[X != 2], X[X != 2])
    again = subs_log_probs(out, X, 2)  # MDLM's own forward applies SUBS once more
    torch.testing.assert_close(again.exp(), out.exp())


def test_only_the_late_blocks_see_the_latent():
    model = tiny_backbone(n_blocks=3, latent_blocks=1)
    assert model.first_latent == 2
    before = model.encode(X, SIGMA)
    with torch.no_grad():
        model.latent_emb.weight.add_(1.0)
    after = model.encode(X, SIGMA)
    assert torch.equal(before.h_BLD, after.h_BLD) and torch.equal(before.cond_BC, after.cond_BC)


def test_components_differ_from_the_start_and_share_the_prior():
    torch.manual_seed(0)
    model = build_backbone(MODEL, 7, 2)
    state = model.encode(X, SIGMA.float())
    torch.testing.assert_close(model.route(state).logw_BK.exp(), torch.full((2, 3), 1 / 3))
    h = model.branch(state).h_RLD.unflatten(0, (2, 3))
    assert not torch.equal(h[:, 0], h[:, 1])


def test_same_seed_gives_mdlm_s_weights_and_leaves_the_random_stream_alone():
    torch.manual_seed(5)
    mdlm = build_backbone({**MODEL, "type": "ddit"}, 7, 2)
    next_number = torch.rand(1)
    torch.manual_seed(5)
    lkf = build_backbone({**MODEL, "num_components": 1}, 7, 2)
    assert torch.equal(torch.rand(1), next_number)
    ours = lkf.trunk.state_dict()
    assert list(ours) == list(mdlm.state_dict())
    assert all(torch.equal(v, ours[k]) for k, v in mdlm.state_dict().items())
    assert torch.equal(mdlm(X, SIGMA.float()), lkf(X, SIGMA.float()))


def test_router_and_latent_are_inert_at_one_component():
    model = tiny_backbone(num_components=1)
    assert not any(p.requires_grad for p in model.router.parameters())
    assert not model.latent_emb.weight.requires_grad
    out = model(X, SIGMA)
    for parameter in [*model.router.parameters(), model.latent_emb.weight]:
        parameter.requires_grad_(True)
        parameter.data.mul_(7.0)
    assert torch.equal(model(X, SIGMA), out)
    logw = model.route(model.encode(X, SIGMA)).logw_BK
    assert torch.equal(logw, torch.zeros(2, 1, dtype=torch.float64))
    loss = logw.sum() + batch_router_entropy(logw) + model(X, SIGMA).square().sum()
    loss.backward()
    for parameter in model.router.parameters():
        assert torch.equal(parameter.grad, torch.zeros_like(parameter))
    assert model.latent_emb.weight.grad is None


def test_native_trunk_is_conditioned_on_both_times():
    model = tiny_backbone(trunk="native")
    s = torch.tensor([0.7, 0.9], dtype=torch.float64)
    base = model.encode(X, SIGMA, s).cond_BC
    assert not torch.allclose(model.encode(X, SIGMA, s + 0.05).cond_BC, base)
    assert not torch.allclose(model.encode(X, SIGMA + 0.05, s).cond_BC, base)
    start = model.encode(X, torch.full_like(SIGMA, torch.inf), s)  # t = 0 is a legal time
    assert torch.isfinite(start.h_BLD).all()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_components": 0}, "at least 1"),
        ({"latent_blocks": 3}, "model.n_blocks=2"),
        ({"latent_blocks": 0}, "between 1"),
        ({"trunk": "oak"}, "matched or native"),
        ({"type": "rnn"}, "take lkf"),
    ],
)
def test_bad_shapes_are_told_in_one_sentence(changes, words):
    with pytest.raises(UserError, match=words):
        build_backbone({**MODEL, **changes}, 7, 2)

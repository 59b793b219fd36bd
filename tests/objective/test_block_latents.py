"""The backbone, its objective and its two phases under every structure, on tiny networks."""

from __future__ import annotations

import pytest
import torch

from lkf_plugin.backbone import build_backbone
from lkf_plugin.corruption import LogLinearNoise
from lkf_plugin.information.product_mixture import all_strings
from lkf_plugin.objective.components import HeadSettings, component_scores
from lkf_plugin.objective.draws import PlainDraws
from lkf_plugin.objective.mixture import Mixture
from tests.tiny import MODEL, tiny_backbone

MASK, L = 3, 4
STRUCTURES = {
    "tree": {"latent": "tree", "num_components": 2, "block_components": 2, "block_length": 2},
    "blocks": {"latent": "tree", "num_components": 1, "block_components": 3, "block_length": 3},
    "chain": {"latent": "chain", "num_components": 1, "block_components": 3, "block_length": 1},
    "chains": {"latent": "chain", "num_components": 2, "block_components": 2, "block_length": 2},
    "late": {"num_components": 3, "latent_site": "after_attention"},
    "late_tree": {
        "latent": "tree", "num_components": 2, "block_components": 2, "block_length": 2,
        "latent_site": "after_attention", "latent_blocks": 2,
    },
    "late_chain": {
        "latent": "chain", "num_components": 1, "block_components": 3, "block_length": 1,
        "latent_site": "after_attention", "n_blocks": 3, "latent_blocks": 2,
    },
    "deep_router": {
        "latent": "chain", "num_components": 2, "block_components": 2, "block_length": 2,
        "latent_site": "after_attention", "n_blocks": 3, "latent_blocks": 2,
        "router_reads": "last_attention",
    },
}
LOSS = {
    "token_head": "auto", "chunk_rows": 4096, "lambda_ent": 0.1, "lambda_lb": 0.2,
    "threshold": 0.0, "drawn": 2, "keep_above": 1.0,
}  # fmt: skip
every_structure = pytest.mark.parametrize("name", STRUCTURES)


def network(name, **changes):
    return tiny_backbone(4, MASK, length=L, **{**STRUCTURES.get(name, {}), **changes})


def corruption(objective, length=8, seed=5):
    torch.manual_seed(seed)
    x_BL = torch.randint(0, 3, (5, length))
    attention_BL = torch.ones_like(x_BL)
    attention_BL[0, -2:] = 0
    draws = PlainDraws(MASK, LogLinearNoise())
    return objective.corrupt(x_BL, attention_BL, draws)


def value_and_gradient(model, backward, seed=0):
    objective = Mixture({**LOSS, "backward": backward}, model.structure)
    c = corruption(objective)
    torch.manual_seed(seed)
    value = objective.train(model, c)
    parameters = [p for p in model.parameters() if p.requires_grad]
    grads = torch.autograd.grad(value.loss + value.penalty, parameters, allow_unused=True)
    assert all(g is not None for g in grads)
    return value, torch.cat([g.flatten() for g in grads])


@every_structure
@pytest.mark.parametrize("trunk", ["matched", "native"])
def test_psi_of_the_network_sums_to_one(name, trunk):
    model = network(name, trunk=trunk)
    with torch.no_grad():
        model.router.out.weight.mul_(0.1)  # no weight of a sequence latent near one
        model.router.out.bias.mul_(0.1)
    targets_XL = all_strings(2, 3)  # what two masks become, the other two are seen
    xt_L = torch.tensor([MASK, MASK, 2, 1])
    x_XL = xt_L.repeat(len(targets_XL), 1)
    counted_XL = x_XL == MASK
    x_XL[:, :2] = targets_XL
    sigma_X = torch.full((len(x_XL),), 0.4, dtype=torch.float64)
    xt_XL = xt_L.expand_as(x_XL)
    p, logp = component_scores(model, xt_XL, x_XL, counted_XL, sigma_X, HeadSettings("full"))
    log_psi_X = model.structure.log_psi(p, model.structure.blocks.sums(logp))
    assert log_psi_X.exp().sum().item() == pytest.approx(1, abs=1e-12)
    # its marginals are the marginal denoiser's, and not its product
    marginal_LV = model(xt_L[None], sigma_X[:1])[0]
    for place in range(2):
        for v in range(3):
            share = log_psi_X[targets_XL[:, place] == v].exp().sum()
            torch.testing.assert_close(marginal_LV[place, v].exp(), share)
    product_X = marginal_LV[0, targets_XL[:, 0]] + marginal_LV[1, targets_XL[:, 1]]
    assert (product_X - log_psi_X).abs().max() > 1e-7


@every_structure
@pytest.mark.parametrize("head", ["mdlm", "chunked"])
def test_both_heads_give_the_same(name, head):
    model = network(name)
    expected = Mixture({**LOSS, "backward": "dense"}, model.structure)
    ours = Mixture({**LOSS, "backward": "dense", "token_head": head}, model.structure)
    c = corruption(expected)
    a, b = (o.loss(o.score(model, c), c) for o in (expected, ours))
    torch.testing.assert_close(a.nll_B, b.nll_B)
    torch.testing.assert_close(a.nlls_BL, b.nlls_BL)


@every_structure
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_two_phases_are_the_dense_objective(name, dropout):
    model = network(name, dropout=dropout)
    dense, exact = value_and_gradient(model, "dense")
    two, found = value_and_gradient(model, "two_phase")
    torch.testing.assert_close(two.loss, dense.loss)
    torch.testing.assert_close(two.nlls_BL, dense.nlls_BL)
    torch.testing.assert_close(found, exact)
    assert exact.norm() > 1e-3
    for key, value in dense.diagnostics.items():
        torch.testing.assert_close(two.diagnostics[key], value)


@every_structure
def test_drawn_components_have_the_right_mean(name):
    model = network(name)
    _, exact = value_and_gradient(model, "dense")
    draws = torch.stack([value_and_gradient(model, "drawn", seed)[1] for seed in range(150)])
    error = (draws.mean(0) - exact).norm()
    expected = (draws.var(0).sum() / len(draws)).sqrt()
    assert 0 < error < 2 * expected


def pair(first, second, **shared):
    """Two networks from one seed, and the generator's state after each."""
    models, after = [], []
    for changes in (first, second):
        torch.manual_seed(11)
        models.append(build_backbone({**MODEL, **shared, **changes}, 4, MASK).train())
        after.append(torch.get_rng_state())
    return models, after


@pytest.mark.parametrize("latent", ["tree", "chain"])
@pytest.mark.parametrize("components", [1, 3])
@pytest.mark.parametrize("backward", ["dense", "two_phase", "drawn"])
def test_one_block_component_is_lkf_bit_for_bit(latent, components, backward):
    """With one component in all that is MDLM, since LKF at M = 1 is."""
    blocks = {"latent": latent, "block_components": 1, "block_length": 2}
    (lkf, ours), after = pair({}, blocks, num_components=components, dropout=0.1)
    assert torch.equal(*after)
    for (name, a), (other, b) in zip(
        lkf.state_dict().items(), ours.state_dict().items(), strict=True
    ):
        assert name == other and torch.equal(a, b)
    results = []
    for model in (lkf, ours):
        objective = Mixture({**LOSS, "backward": backward}, model.structure)
        c = corruption(objective)
        torch.manual_seed(3)
        value = objective.train(model, c)
        (value.loss + value.penalty).backward()
        results.append((value, [p.grad for p in model.parameters()]))
    (a, grads), (b, others) = results
    assert torch.equal(a.loss, b.loss) and torch.equal(a.nlls_BL, b.nlls_BL)
    for grad, other in zip(grads, others, strict=True):
        assert (grad is None and other is None) or torch.equal(grad, other)


def test_potentials_start_uniform_and_a_chain_sticky():
    x_BL, sigma_B = torch.full((2, 4), MASK), torch.ones(2)
    for name, changes in STRUCTURES.items():
        model = build_backbone({**MODEL, **changes, "sticky": 2.0}, 4, MASK)
        p = model.route(model.encode(x_BL, sigma_B))
        for part in p[:2]:
            torch.testing.assert_close(part.exp(), torch.full_like(part, 1 / part.shape[-1]))
        if "chain" in name:
            stays = torch.softmax(2.0 * torch.eye(changes["block_components"]), -1)
            torch.testing.assert_close(p[2].exp(), stays.expand_as(p[2]))

"""The latent behind attention, against networks written out position by position."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from lkf_plugin.backbone import build_backbone
from lkf_plugin.backbone.stack import Places
from lkf_plugin.errors import UserError
from tests.tiny import MODEL, tiny_backbone

X = torch.tensor([[2, 2, 0, 2, 5, 2], [1, 2, 2, 2, 2, 3]])
SIGMA = torch.tensor([0.3, 1.2], dtype=torch.float64)
LATE = {"latent_site": "after_attention", "n_blocks": 4, "latent_blocks": 3}
every_trunk = pytest.mark.parametrize("trunk", ["matched", "native"])


def parts_of(block, act_C):
    """shift_a, scale_a, gate_a, shift_m, scale_m, gate_m, each [D]."""
    film = block.parts(block.adaLN_modulation(act_C))
    return [part.flatten() for part in film]


def by_hand(model, b, k, i):
    """The residual stream of component k of sequence b at position i, without batches."""
    state = model.trunk.embed(X[b : b + 1], SIGMA[b : b + 1], None)
    shared_LD = model.trunk.run_blocks(state.h_BLD, state.act_BC, 0, model.first_latent)[0]
    own_C = F.silu(state.cond_BC[0] + model.latent_emb.weight[k])
    x_D = shared_LD[i]
    cos_sin = model.trunk.rotary_emb(X.shape[1])
    for block in model.trunk.blocks[model.first_latent :]:
        film = block.film(state.act_BC)
        attention_LD = block.attn_out(block.attended(shared_LD[None], film, cos_sin))[0]
        _, _, gate_a, shift_m, scale_m, gate_m = parts_of(block, own_C)
        x_D = x_D + gate_a * attention_LD[i]
        x_D = x_D + gate_m * block.mlp(block.norm2(x_D) * (1 + scale_m) + shift_m)
        shared_LD = block(shared_LD[None], state.act_BC, cos_sin)[0]  # MDLM's own block
    return x_D


@every_trunk
def test_every_component_at_every_position_is_the_network_written_out(trunk):
    model = tiny_backbone(trunk=trunk, **LATE)
    h_BMLD = model.branch(model.encode(X, SIGMA)).h_RLD.unflatten(0, (2, 3))
    for b in range(2):
        for k in range(3):
            for i in range(6):
                torch.testing.assert_close(h_BMLD[b, k, i], by_hand(model, b, k, i))
    assert (h_BMLD[:, 0] - h_BMLD[:, 1]).abs().min() > 1e-9, "components must differ everywhere"


@every_trunk
def test_gathered_positions_are_those_of_the_whole_branch(trunk):
    model = tiny_backbone(trunk=trunk, **LATE)
    state = model.encode(X, SIGMA)
    rows, components = torch.tensor([1, 0, 1]), torch.tensor([2, 1, 0])
    at = Places(torch.tensor([2, 0, 1, 1, 2]), torch.tensor([3, 0, 2, 5, 3]))
    hidden_ND = model.branch_hidden(state, at, rows, components)
    logits_NV = F.linear(hidden_ND, model.head_weight, model.head_bias)
    whole_RLV = model.logits(model.branch(state, rows, components))
    torch.testing.assert_close(logits_NV, whole_RLV[at])
    every_MLV = model.logits(model.branch(state))
    torch.testing.assert_close(whole_RLV, every_MLV[rows * 3 + components])


def test_with_all_embeddings_equal_the_components_are_one_network_of_mdlm_s_blocks():
    """An embedding of zero conditions as the trunk does: the plain network, whatever the site."""
    model = tiny_backbone(**LATE)
    with torch.no_grad():
        model.latent_emb.weight.zero_()
    logits = model.logits(model.branch(model.encode(X, SIGMA))).unflatten(0, (2, 3))
    for k in range(3):
        torch.testing.assert_close(logits[:, k], model.trunk(X, SIGMA))


def test_a_component_of_another_position_changes_nothing():
    """Positions may hold different components in one pass: each is its component's own."""
    model = tiny_backbone(**LATE)
    state = model.encode(X, SIGMA)
    rows, components = torch.zeros(3, dtype=torch.int64), torch.arange(3)
    mixed = model.branch_hidden(
        state, Places(torch.tensor([0, 1, 2]), torch.tensor([0, 1, 3])), rows, components
    )
    for k, i in enumerate((0, 1, 3)):
        alone = Places(torch.tensor([0]), torch.tensor([i]))
        one = model.branch_hidden(state, alone, rows[:1], components[k : k + 1])
        torch.testing.assert_close(mixed[k : k + 1], one)


def test_one_component_is_the_trunk_at_either_site():
    shape = {**MODEL, **LATE, "num_components": 1}
    models = []
    for site in ("block", "after_attention"):
        torch.manual_seed(3)
        models.append(build_backbone({**shape, "latent_site": site}, 7, 2).train())
    (a, b), sigma = models, SIGMA.float()
    assert not b.late and torch.equal(a(X, sigma), b(X, sigma))
    assert torch.equal(a(X, sigma), a.trunk(X, sigma))


@every_trunk
def test_dropout_is_shared_by_the_components_and_checkpointing_keeps_it(trunk):
    model = tiny_backbone(trunk=trunk, dropout=0.4, **LATE).train()
    with torch.no_grad():
        model.latent_emb.weight.copy_(model.latent_emb.weight[:1].expand(3, -1))
    found = []
    for recompute in (False, True):
        model.trunk.activation_checkpointing = recompute
        torch.manual_seed(4)
        logits = model.logits(model.branch(model.encode(X, SIGMA))).unflatten(0, (2, 3))
        torch.testing.assert_close(logits[:, 0], logits[:, 2])
        grads = torch.autograd.grad(logits.square().sum(), list(model.trunk.parameters()))
        found.append(torch.cat([g.flatten() for g in grads]))
    torch.testing.assert_close(*found)
    torch.manual_seed(5)
    other = model.logits(model.branch(model.encode(X, SIGMA))).unflatten(0, (2, 3))
    assert (other - logits).abs().max() > 1e-3


def test_another_site_is_refused():
    with pytest.raises(UserError, match="latent_site=attention must be one of block"):
        tiny_backbone(latent_site="attention")


@every_trunk
def test_the_router_may_read_the_stream_behind_the_last_attention(trunk):
    model = tiny_backbone(trunk=trunk, **LATE, router_reads="last_attention")
    state = model.trunk.embed(X, SIGMA, None)
    last = len(model.trunk.blocks) - 1
    h_BLD = model.trunk.run_blocks(state.h_BLD, state.act_BC, 0, last)  # MDLM's own blocks
    block, cos_sin = model.trunk.blocks[last], model.trunk.rotary_emb(X.shape[1])
    film = block.film(state.act_BC)
    read_BLD = h_BLD + film.gate_a * block.attention(h_BLD, film, cos_sin)
    expected = model.router(read_BLD).logw_BK
    for asked in (model.encode(X, SIGMA), model.shared(X, SIGMA)):
        torch.testing.assert_close(model.route(asked).logw_BK, expected)
        rows = torch.tensor([1, 0, 1])
        torch.testing.assert_close(model.route(asked.of_rows(rows)).logw_BK, expected[rows])
    shallow = tiny_backbone(trunk=trunk, **LATE)
    assert (shallow.route(shallow.encode(X, SIGMA)).logw_BK - expected).abs().max() > 1e-6


def test_what_the_router_reads_is_refused_where_it_is_not():
    with pytest.raises(UserError, match="router_reads=all must be one of shared_blocks, last_att"):
        tiny_backbone(router_reads="all")
    with pytest.raises(UserError, match="needs model.latent_site=after_attention"):
        tiny_backbone(router_reads="last_attention")
    one = tiny_backbone(**LATE, num_components=1, router_reads="last_attention")
    assert not one.reads_last_attention and torch.equal(one(X, SIGMA), one.trunk(X, SIGMA))

"""Short starts: every block acts from the first step, and heads look at their neighbours."""

from __future__ import annotations

import pytest
import torch

from lkf_plugin.backbone import build_backbone
from lkf_plugin.backbone.attention import Rotary, rotate
from lkf_plugin.backbone.short_start import neighbour_query_key
from tests.tiny import MODEL

SIZES = {**MODEL, "num_components": 1, "hidden_size": 64, "n_blocks": 4, "n_heads": 2}
TRUNKS = pytest.mark.parametrize("trunk", ["matched", "native"])


def backbone(trunk, **start):
    torch.manual_seed(0)
    return build_backbone({**SIZES, "trunk": trunk, **start}, 7, 2)


@TRUNKS
def test_open_gates(trunk):
    x, sigma = torch.randint(7, (3, 8)), torch.rand(3)
    closed = backbone(trunk)
    state = closed.trunk.embed(x, sigma, None)
    assert torch.equal(closed.trunk.run_blocks(state.h_BLD, state.act_BC, 0, 4), state.h_BLD)
    opened = backbone(trunk, open_gates=True)
    state = opened.trunk.embed(x, sigma, None)
    h_BLD = opened.trunk.run_blocks(state.h_BLD, state.act_BC, 0, 4)
    assert not torch.allclose(h_BLD, state.h_BLD)
    assert h_BLD.std() < 3 * max(state.h_BLD.std(), 1.0)


@pytest.mark.parametrize("head_width", [16, 32, 64])
def test_constant_query_and_key_peak_at_a_neighbour(head_width):
    """Scores of every pair of positions: the largest is one before (even heads) or after."""
    L, H = 12, 4
    rotary = Rotary(head_width)
    query_D, key_D = neighbour_query_key(H, H * head_width, rotary)
    q, k = (x.view(1, 1, H, head_width).expand(1, L, -1, -1) for x in (query_D, key_D))
    q, k = rotate(q, rotary(L))[0], rotate(k, rotary(L))[0]
    scores_HLL = torch.einsum("ihe,jhe->hij", q, k)
    inner = torch.arange(1, L - 1)
    for head in range(H):
        step = 1 if head % 2 else -1
        assert torch.equal(scores_HLL[head].argmax(-1)[inner], inner + step)


@TRUNKS
def test_local_heads_of_a_network_attend_to_neighbours(trunk):
    """Average attention weights of the first block's two heads over random tokens."""
    network = backbone(trunk, local_heads=True, hidden_size=128).trunk
    block, L = network.blocks[0], 8
    state = network.embed(torch.randint(7, (64, L)), torch.rand(64), None)
    film = block.film(state.act_BC)
    normed = block.norm1(state.h_BLD) * (1 + film.scale_a) + film.shift_a
    q, k, _ = block.attn_qkv(normed).unflatten(-1, (3, 2, -1)).unbind(2)
    q, k = rotate(q, network.rotary_emb(L)), rotate(k, network.rotary_emb(L))
    weights = (torch.einsum("bihe,bjhe->bhij", q, k) / 64**0.5).softmax(-1).mean(0)
    inner = torch.arange(1, L - 1)
    for head, step in ((0, -1), (1, 1)):
        chosen = weights[head][inner, inner + step].mean()
        assert chosen > 2 / L
        assert chosen > 1.3 * weights[head][inner, inner - step].mean()


@TRUNKS
def test_local_heads_leave_the_network_of_closed_gates_alone(trunk):
    """They are a start of attention only: with adaLN-zero's closed gates nothing changes."""
    x, sigma = torch.randint(7, (3, 8)), torch.rand(3)
    plain, local = backbone(trunk), backbone(trunk, local_heads=True)
    logits = [net.logits(net.branch(net.encode(x, sigma))) for net in (plain, local)]
    assert torch.equal(*logits)

"""Opened gates: every block acts from the first step, and the stream keeps its size."""

from __future__ import annotations

import pytest
import torch

from lkf_plugin.backbone import build_backbone
from tests.tiny import MODEL


@pytest.mark.parametrize("trunk", ["matched", "native"])
def test_open_gates(trunk):
    sizes = {**MODEL, "trunk": trunk, "num_components": 1, "hidden_size": 64, "n_blocks": 4}
    x, sigma = torch.randint(7, (3, 8)), torch.rand(3)
    torch.manual_seed(0)
    closed = build_backbone(sizes, 7, 2)
    state = closed.trunk.embed(x, sigma, None)
    assert torch.equal(closed.trunk.run_blocks(state.h_BLD, state.act_BC, 0, 4), state.h_BLD)
    torch.manual_seed(0)
    opened = build_backbone({**sizes, "open_gates": True}, 7, 2)
    state = opened.trunk.embed(x, sigma, None)
    h_BLD = opened.trunk.run_blocks(state.h_BLD, state.act_BC, 0, 4)
    assert not torch.allclose(h_BLD, state.h_BLD)
    assert h_BLD.std() < 3 * max(state.h_BLD.std(), 1.0)

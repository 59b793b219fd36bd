"""A last block that is run in part, and dropout that is tied to pairs."""

from __future__ import annotations

import pytest
import torch

from lkf_plugin.backbone.dropout import PairDraw
from lkf_plugin.backbone.stack import Places
from tests.tiny import tiny_backbone

X = torch.tensor([[2, 2, 0, 2, 5, 2], [1, 2, 2, 2, 2, 3]])
SIGMA = torch.tensor([0.3, 1.2], dtype=torch.float64)
AT = Places(torch.tensor([0, 3, 3, 5]), torch.tensor([1, 0, 5, 2]))


@pytest.mark.parametrize("trunk", ["matched", "native"])
@pytest.mark.parametrize("components", [1, 3])
@pytest.mark.parametrize("recompute", [False, True])
def test_gathered_hidden_states_and_their_gradient(trunk, components, recompute):
    """Dropout on: the draw is that of the whole block."""
    model = tiny_backbone(trunk=trunk, num_components=components, dropout=0.4, n_blocks=3)
    model.train()
    model.trunk.activation_checkpointing = recompute
    at = AT if components > 1 else Places(torch.tensor([0, 1, 1]), torch.tensor([1, 0, 5]))
    results = []
    for gathered in (True, False):
        torch.manual_seed(3)
        state = model.encode(X, SIGMA)
        if gathered:
            hidden = model.branch_hidden(state, at)
        else:
            branch = model.branch(state)
            hidden = model.trunk.output_hidden(branch.h_RLD[at], branch.act_RC, at.row_N)
        parameters = [p for p in model.parameters() if p.requires_grad]
        grads = torch.autograd.grad(hidden.square().sum(), parameters, allow_unused=True)
        results.append((hidden.detach(), *(g for g in grads if g is not None)))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_a_pair_keeps_the_same_activations_in_any_company():
    draw = PairDraw(seed=5, batch=3)
    h = torch.zeros(1, 4, 6)
    rows, components = torch.arange(3).repeat(4), torch.arange(4).repeat_interleave(3)
    every = draw.keep(1, h, 0.3, rows, components, range(4))
    some = draw.keep(1, h, 0.3, torch.tensor([2, 0]), torch.tensor([3, 2]), range(2, 4))
    for a, b in zip(every, some, strict=True):
        assert torch.equal(a[[3 * 3 + 2, 2 * 3]], b)


def test_masks_differ_between_pairs_blocks_places_and_steps():
    rows, components = torch.arange(3).repeat(4), torch.arange(4).repeat_interleave(3)
    masks = []
    for seed in (5, 6):
        draw = PairDraw(seed, batch=3)
        for block in (0, 1):
            for keep in draw.keep(block, torch.zeros(1, 16, 32), 0.3, rows, components, range(4)):
                assert abs(keep.float().mean().item() - 0.7) < 0.02
                masks += list(keep.flatten(1))
    stacked = torch.stack(masks).float()
    same = (stacked[:, None] == stacked[None]).float().mean(-1)
    off = same[~torch.eye(len(same), dtype=torch.bool)]
    # independent masks agree where both keep or both drop: .7^2 + .3^2
    assert off.max() < 0.58 + 0.12 and off.min() > 0.58 - 0.12

"""Muon: directions are orthogonal, and the step is torch's up to its bfloat16."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from lkf_plugin.train.muon import Muon, orthogonalized


@pytest.mark.parametrize("shape", [(8, 8), (6, 20), (20, 6)])
def test_singular_values_come_close_to_one(shape):
    torch.manual_seed(0)
    matrix = torch.randn(shape)
    u, _, vh = torch.linalg.svd(matrix, full_matrices=False)
    found = orthogonalized(matrix)
    values = torch.linalg.svdvals(found)
    assert values.min() > 0.4 and values.max() < 1.3
    assert ((u.T @ found @ vh.T).diag() > 0.4).all()  # the same singular vectors


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has no Muon")
def test_three_steps_are_those_of_torch():
    torch.manual_seed(0)
    start, target = torch.randn(12, 7), torch.randn(12, 7)
    ends = []
    for optimizer_class in (Muon, torch.optim.Muon):
        weight = nn.Parameter(start.clone())
        optimizer = optimizer_class([weight], lr=0.05, momentum=0.9, weight_decay=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            (weight - target).square().sum().backward()
            optimizer.step()
        ends.append(weight.detach())
    moved = (ends[0] - start).norm()
    assert (ends[0] - ends[1]).norm() < 0.02 * moved


def test_a_weight_without_gradient_stays():
    weight = nn.Parameter(torch.ones(2, 2))
    Muon([weight], weight_decay=0.5).step()
    assert torch.equal(weight.detach(), torch.ones(2, 2))

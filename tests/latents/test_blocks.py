"""Sums, means and indices of groups against loops."""

from __future__ import annotations

import pytest
import torch

from lkf_plugin.latents.blocks import Blocks


@pytest.mark.parametrize("block_length", [None, 1, 2, 3, 4, 7, 12])
@pytest.mark.parametrize("length", [7, 8])
def test_groups_against_a_loop(block_length, length):
    blocks = Blocks(block_length)
    size = block_length or length
    groups = [list(range(i, min(i + size, length))) for i in range(0, length, size)]
    assert blocks.count(length) == len(groups)
    torch.manual_seed(0)
    logp_BML = torch.randn(2, 3, length, dtype=torch.float64)
    h_BLD = torch.randn(2, length, 5, dtype=torch.float64)
    sums_BGM, means_BGD = blocks.sums(logp_BML), blocks.means(h_BLD)
    group_L = blocks.group_of(length)
    for g, positions in enumerate(groups):
        assert (group_L[positions] == g).all()
        torch.testing.assert_close(sums_BGM[:, g], logp_BML[..., positions].sum(-1))
        torch.testing.assert_close(means_BGD[:, g], h_BLD[:, positions].mean(1))

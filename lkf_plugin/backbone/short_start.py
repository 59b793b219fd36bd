"""Starts for runs of minutes: gates that are open, and heads that look at the neighbours.

MDLM's start (adaLN-zero, the paper's too) is left as it is unless a config asks for these. They set
weights once and change nothing in the network.

Shape legend: D width, H heads, E head width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from lkf_plugin.backbone.attention import rotate
from lkf_plugin.backbone.stack import AdaLNBlock
from lkf_plugin.backbone.trunk import Trunk

NEIGHBOUR_STRENGTH = 1.4  # of each entry of the constant query and key


def start_short(trunk: Trunk, model: Mapping[str, Any]) -> None:
    """Applies ``model.open_gates`` and ``model.local_heads``, where the config sets them."""
    if model.get("open_gates", False):
        open_gates(trunk)
    if model.get("local_heads", False):
        local_heads(trunk)


def open_gates(trunk: Trunk) -> None:
    """Starts every residual gate at one instead of zero, its branch scaled down to match.

    adaLN-zero spends the first hundreds of steps on opening the gates: nothing in a long run, most
    of a run of minutes. Branch outputs are scaled by (2 blocks)^-1/2, so that the residual stream
    starts at the size of its input.
    """
    with torch.no_grad():
        for block in trunk.blocks:
            assert isinstance(block, AdaLNBlock)
            film = block.parts(block.adaLN_modulation.bias)
            film.gate_a.fill_(1.0)
            film.gate_m.fill_(1.0)
        for projection in trunk.branch_outputs():
            projection.weight.mul_((2 * len(trunk.blocks)) ** -0.5)


def local_heads(trunk: Trunk) -> None:
    """Starts every head looking at a neighbour: even heads at the one before, odd ones after.

    A masked model cannot beat the unigram distribution before some head finds out where its
    neighbours are, and on a small budget that search is the longest part of training. Here queries
    and keys start with a constant part b, the query's turned by one position, so that the rotary
    score of positions i and j is largest at j = i - 1 or i + 1. The constant enters through the
    adaLN shift c that attention's input has, and W_q, W_k are corrected by a rank of one to send c
    to b; both are free to change from the first step.
    """
    with torch.no_grad():
        for block in trunk.blocks:
            assert isinstance(block, AdaLNBlock)
            shift_D = block.parts(block.adaLN_modulation.bias).shift_a
            shift_D.fill_(1.0)
            query_D, key_D = neighbour_query_key(block.n_heads, shift_D.numel(), trunk.rotary_emb)
            w_q, w_k, _ = block.attn_qkv.weight.chunk(3)
            for weight, wanted_D in ((w_q, query_D), (w_k, key_D)):
                missing_D = wanted_D - weight @ shift_D
                weight.add_(torch.outer(missing_D, shift_D) / shift_D.square().sum())


def neighbour_query_key(n_heads: int, dim: int, rotary: nn.Module) -> tuple[Tensor, Tensor]:
    """Constant query and key, each [D], whose rotary score peaks at offset -1 (even heads) or 1.

    Rotary scores depend on R_i q and R_j k by j - i alone: with q = R_d k they peak at j = i + d.
    """
    key_HE = torch.full((n_heads, dim // n_heads), NEIGHBOUR_STRENGTH)
    cos, sin = rotary(2)
    ahead_HE = rotate(key_HE[None, None], (cos[1:], sin[1:]))[0, 0]
    behind_HE = rotate(key_HE[None, None], (cos[1:], -sin[1:]))[0, 0]
    odd_H1 = (torch.arange(n_heads) % 2 == 1)[:, None]
    return torch.where(odd_H1, ahead_HE, behind_HE).flatten(), key_HE.flatten()

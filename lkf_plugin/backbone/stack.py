"""Running a stack of adaLN blocks: dropout masks, recomputation, and a last block in part.

Shape legend: R rows, L positions, N gathered (row, position) pairs, D width, C conditioning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lkf_plugin.backbone.attention import attend, rotate
from lkf_plugin.backbone.dropout import Keep, drop
from lkf_plugin.backbone.layers import modulate


class Places(NamedTuple):
    """Gathered positions: ``row_N`` indexes rows, ``position_N`` positions in them."""

    row_N: Tensor
    position_N: Tensor


class Film(NamedTuple):
    """Modulation of one block, each [R, 1, D] (or [N, D] at gathered positions)."""

    shift_a: Tensor
    scale_a: Tensor
    gate_a: Tensor
    shift_m: Tensor
    scale_m: Tensor
    gate_m: Tensor

    def beyond_at(self, row_N: Tensor) -> Film:
        """At gathered positions of rows what the block needs beyond attention, each [N, D]."""
        rest = (part.squeeze(1).index_select(0, row_N) for part in self[2:])
        return Film(self.shift_a, self.scale_a, *rest)


class AdaLNBlock(nn.Module):
    """Attention and MLP, each normed, modulated, gated and added.

    Subclasses set the layers below and say how the modulation's six parts are ordered.
    """

    n_heads: int
    dropout: float
    norm1: nn.Module
    attn_qkv: nn.Linear
    attn_out: nn.Linear
    norm2: nn.Module
    mlp: nn.Module
    adaLN_modulation: nn.Linear

    @property
    def mlp_out(self) -> nn.Linear:
        """The MLP's last projection."""
        raise NotImplementedError

    def film(self, act_RC: Tensor) -> Film:
        """Modulation of each row."""
        return self.parts(self.adaLN_modulation(act_RC)[:, None])

    @staticmethod
    def parts(outputs: Tensor) -> Film:
        """The modulation's six parts, views of its projection's outputs (or of its bias)."""
        raise NotImplementedError

    def attended(self, x_RLD: Tensor, film: Film, cos_sin: tuple[Tensor, Tensor]) -> Tensor:
        """What attention collects, before its output projection, [R, L, D]."""
        normed = modulate(self.norm1(x_RLD), film.shift_a, film.scale_a)
        q, k, v = self.attn_qkv(normed).unflatten(-1, (3, self.n_heads, -1)).unbind(dim=2)
        return attend(rotate(q, cos_sin), rotate(k, cos_sin), v).flatten(-2)

    def attention(
        self,
        x_RLD: Tensor,
        film: Film,
        cos_sin: tuple[Tensor, Tensor],
        keep_RLD: Tensor | None = None,
    ) -> Tensor:
        """What attention adds, before its gate, [R, L, D]."""
        collected = self.attn_out(self.attended(x_RLD, film, cos_sin))
        return drop(collected, self.dropout, self.training, keep_RLD)

    def beyond(self, x: Tensor, attention: Tensor, film: Film, keep: Tensor | None) -> Tensor:
        """The rest of the block, which knows one position at a time.

        Args:
            x: the block's input.
            attention: what ``attention`` adds to it.
            film: of the same positions.
            keep: dropout mask behind the MLP.
        """
        x = x + film.gate_a * attention
        normed = modulate(self.norm2(x), film.shift_m, film.scale_m)
        return x + film.gate_m * drop(self.mlp(normed), self.dropout, self.training, keep)

    def forward(
        self,
        x_RLD: Tensor,
        act_RC: Tensor,
        cos_sin: tuple[Tensor, Tensor],
        keep: Keep | None = None,
        at: Places | None = None,
    ) -> Tensor:
        """The block's output, [R, L, D]; with ``at`` only there, [N, D].

        Beyond attention a position needs nothing of the others, so positions that nobody asks for
        can leave there: three quarters of a block's arithmetic.
        """
        film = self.film(act_RC)
        attended = self.attended(x_RLD, film, cos_sin)
        if at is not None:
            x_RLD, attended = x_RLD[at], attended[at]
            film = film.beyond_at(at.row_N)
            keep = None if keep is None else keep.at(*at)
        kept = (None, None) if keep is None else keep
        attention = drop(self.attn_out(attended), self.dropout, self.training, kept[0])
        return self.beyond(x_RLD, attention, film, kept[1])


def run_stack(
    blocks: Iterable[nn.Module],
    h_RLD: Tensor,
    act_RC: Tensor,
    cos_sin: tuple[Tensor, Tensor],
    recompute: bool = False,
    keep_of: Callable[[int, Tensor], Keep | None] | None = None,
    at: Places | None = None,
) -> Tensor:
    """Blocks in order.

    Args:
        blocks: of one stack.
        h_RLD, act_RC: residual stream and activated conditioning.
        cos_sin: rotary angles.
        recompute: activation checkpointing in the backward pass.
        keep_of: dropout masks of block i given its input, or None for torch's own dropout.
        at: where the last block's output is wanted; None is everywhere. With dropout it takes
            ``keep_of``, so that the draw is that of the whole block.
    """
    stack = list(blocks)
    for i, block in enumerate(stack):
        assert isinstance(block, AdaLNBlock)
        where = at if i == len(stack) - 1 else None
        keep = None if keep_of is None else keep_of(i, h_RLD)
        if recompute and torch.is_grad_enabled():
            h_RLD = checkpoint(block, h_RLD, act_RC, cos_sin, keep, where, use_reentrant=False)
        else:
            h_RLD = block(h_RLD, act_RC, cos_sin, keep, where)
    return h_RLD

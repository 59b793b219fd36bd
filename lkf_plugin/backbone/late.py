"""The latent behind attention: what mixes positions is run once, components only what does not.

One stream without a latent runs all blocks, and each latent block keeps what its attention
collected. A component's stream starts where the latent enters and takes from these blocks the
shared attention under its own gate, and MLP and output modulation under its own conditioning:

    x^k <- x^k + gate_a(k) attention;  x^k <- x^k + gate_m(k) MLP(film(k, norm(x^k)))

Nothing of it knows another position, so a component costs only where it is asked for, and the
positions of a sequence may hold different components. Dropout masks are shared by all components:
whatever is run, in whatever pass, drops the same.

Shape legend: B sequences, R rows (sequence, component), L positions, N gathered (row, position)
pairs, D width, C conditioning.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lkf_plugin.backbone.dropout import draw_keep
from lkf_plugin.backbone.stack import AdaLNBlock, Film
from lkf_plugin.backbone.trunk import LateBlock


def share_attention(
    blocks: Iterable[nn.Module],
    h_BLD: Tensor,
    act_BC: Tensor,
    cos_sin: tuple[Tensor, Tensor],
    recompute: bool = False,
) -> tuple[tuple[LateBlock, ...], Tensor]:
    """Runs the stream without a latent through the latent blocks, but for the last one's MLP.

    Returns what each block shares, and the stream before the last one, [B, L, D].

    Args:
        blocks: the latent ones, in order.
        h_BLD, act_BC: residual stream and activated conditioning.
        cos_sin: rotary angles.
        recompute: activation checkpointing in the backward pass.
    """
    shared: list[LateBlock] = []
    before: AdaLNBlock | None = None
    for block in blocks:
        assert isinstance(block, AdaLNBlock)
        if before is not None:
            last = shared[-1]
            film = before.film(act_BC)
            h_BLD = _run(recompute, before.beyond, h_BLD, last.attention_BLD, film, last.keep_BLD)
        keep = draw_keep(h_BLD, block.dropout) if block.training and block.dropout else None
        attention_keep, mlp_keep = (None, None) if keep is None else keep
        attention_BLD = _run(
            recompute, block.attention, h_BLD, block.film(act_BC), cos_sin, attention_keep
        )
        shared.append(LateBlock(attention_BLD, mlp_keep))
        before = block
    return tuple(shared), h_BLD


def behind_attention(
    block: nn.Module, shared: LateBlock, h_BLD: Tensor, act_BC: Tensor
) -> Tensor:
    """The stream without a latent behind a block's attention, before its MLP, [B, L, D]."""
    assert isinstance(block, AdaLNBlock)
    return h_BLD + block.film(act_BC).gate_a * shared.attention_BLD


def run_late(
    blocks: Iterable[nn.Module],
    late: Sequence[LateBlock],
    h_RLD: Tensor,
    act_RC: Tensor,
    recompute: bool = False,
) -> Tensor:
    """Component streams at every position, [R, L, D]; all arguments of the same rows."""
    for block, shared in zip(blocks, late, strict=True):
        assert isinstance(block, AdaLNBlock)
        film = block.film(act_RC)
        h_RLD = _run(
            recompute, block.beyond, h_RLD, shared.attention_BLD, film, shared.keep_BLD
        )
    return h_RLD


def run_late_at(
    blocks: Iterable[nn.Module],
    late: Sequence[LateBlock],
    h_BLD: Tensor,
    act_RC: Tensor,
    row_N: Tensor,
    source_N: Tensor,
    recompute: bool = False,
) -> Tensor:
    """Component streams at gathered positions, [N, D].

    Args:
        late, h_BLD: of the sequences.
        act_RC: activated conditioning of (sequence, component) pairs.
        row_N: pair of each position.
        source_N: its place in the batch, b * L + i.
    """

    def there(x_BLD: Tensor) -> Tensor:
        return x_BLD.flatten(0, 1).index_select(0, source_N)

    h_ND = there(h_BLD)
    for block, shared in zip(blocks, late, strict=True):
        assert isinstance(block, AdaLNBlock)
        film = block.film(act_RC).beyond_at(row_N)
        keep = None if shared.keep_BLD is None else there(shared.keep_BLD)
        h_ND = _run(recompute, block.beyond, h_ND, there(shared.attention_BLD), film, keep)
    return h_ND


def _run(recompute: bool, part, *arguments: Tensor | Film | None | tuple[Tensor, Tensor]) -> Tensor:  # type: ignore[no-untyped-def]
    if recompute and torch.is_grad_enabled():
        return checkpoint(part, *arguments, use_reentrant=False)
    return part(*arguments)

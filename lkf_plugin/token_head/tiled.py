"""The token head in tiles of its logits: some rows by some columns of the vocabulary at a time.

A tile stays in the processor's cache from the matrix product to the exponential, so the logits
never travel to memory and back; on two CPU cores that doubles the rate of the product itself. Sums
over tiles are kept as (largest logit, sum of exponentials) and merged in float32 or better.

Shape legend: N rows, D width, V vocabulary, C columns of a tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from lkf_plugin.subs import NEG_INFINITY

# A tile of float32 is then 1 MB; more rows at once make the product no faster there.
CPU_COLUMNS, CPU_ROWS = 1024, 256


def column_tiles(vocab_size: int, device: torch.device) -> list[slice]:
    """Columns of each tile; a GPU takes the whole vocabulary at once."""
    step = CPU_COLUMNS if device.type == "cpu" else vocab_size
    return [slice(s, min(s + step, vocab_size)) for s in range(0, vocab_size, step)]


@dataclass
class Head:
    """A head's weights in the dtype of its matrix product.

    Attributes:
        weight_VD, bias_V: the output projection; the bias may be None.
        mask_index: token whose probability is zero (SUBS), or None.
        out_dtype: of logits and of everything after them.
    """

    weight_VD: Tensor
    bias_V: Tensor | None
    mask_index: int | None
    out_dtype: torch.dtype

    @staticmethod
    def cast(
        weight_VD: Tensor, bias_V: Tensor | None, mask_index: int | None, gemm_dtype: torch.dtype
    ) -> Head:
        """The head for products in ``gemm_dtype``."""
        wide = torch.float64 if gemm_dtype == torch.float64 else torch.float32
        bias = None if bias_V is None else bias_V.to(gemm_dtype)
        return Head(weight_VD.to(gemm_dtype), bias, mask_index, wide)

    def tiles(self) -> list[slice]:
        return column_tiles(self.weight_VD.shape[0], self.weight_VD.device)

    def logits(self, h_ND: Tensor, columns: slice, out_NC: Tensor) -> Tensor:
        """Logits of some columns, written to ``out_NC``; the mask's lie 1e6 lower."""
        weight = self.weight_VD[columns]
        bias = None if self.bias_V is None else self.bias_V[columns]
        if h_ND.dtype == self.out_dtype:
            torch.mm(h_ND, weight.T, out=out_NC)
            if bias is not None:
                out_NC += bias
        else:
            out_NC.copy_(F.linear(h_ND, weight, bias))
        if self.mask_index is not None and columns.start <= self.mask_index < columns.stop:
            out_NC[:, self.mask_index - columns.start] += NEG_INFINITY
        return out_NC


def _in_tile(target_N: Tensor, columns: slice) -> tuple[Tensor, Tensor]:
    """(index inside the tile [N, 1], whether it lies there [N, 1])."""
    index = target_N[:, None] - columns.start
    inside = (index >= 0) & (index < columns.stop - columns.start)
    return torch.where(inside, index, 0), inside


@dataclass
class _Running:
    """Log-sum-exp and target logit of rows, while tiles come in."""

    top_N: Tensor
    sum_N: Tensor
    picked_N: Tensor

    @staticmethod
    def start(rows: int, head: Head) -> _Running:
        zeros = torch.zeros(rows, dtype=head.out_dtype, device=head.weight_VD.device)
        return _Running(torch.full_like(zeros, -torch.inf), zeros, zeros.clone())

    def add(self, logits_NC: Tensor, target_N: Tensor, columns: slice) -> Tensor:
        """Takes a tile in; afterwards it holds exp(logits - top). Returns that top."""
        index, inside = _in_tile(target_N, columns)
        picked = torch.where(inside, logits_NC.gather(1, index), 0.0)
        self.picked_N += picked.squeeze(1)
        top_N = torch.maximum(self.top_N, logits_NC.amax(1))
        logits_NC.sub_(top_N[:, None]).exp_()
        self.sum_N = self.sum_N * torch.exp(self.top_N - top_N) + logits_NC.sum(1)
        self.top_N = top_N
        return top_N

    def lse(self) -> Tensor:
        return self.top_N + self.sum_N.log()


def rows_at_once(rows: int, chunk_rows: int, device: torch.device) -> int:
    """Rows of a tile: ``chunk_rows``, on a CPU ``CPU_ROWS`` at most."""
    return max(1, min(rows, chunk_rows, CPU_ROWS if device.type == "cpu" else rows))


def _chunks(rows: int, at_once: int) -> Iterator[slice]:
    for start in range(0, rows, at_once):
        yield slice(start, min(start + at_once, rows))


def _buffer(rows: int, columns: int, head: Head) -> Tensor:
    return torch.empty(rows * columns, dtype=head.out_dtype, device=head.weight_VD.device)


def _view(buffer: Tensor, rows: int, columns: slice) -> Tensor:
    """A contiguous [rows, columns] window at the start of a flat buffer."""
    width = columns.stop - columns.start
    return buffer[: rows * width].view(rows, width)


def tiled_logprob(
    head: Head, h_ND: Tensor, target_N: Tensor, chunk_rows: int
) -> tuple[Tensor, Tensor]:
    """(log-probability of the target, log-sum-exp), each [N]; saves nothing."""
    rows, tiles = h_ND.shape[0], head.tiles()
    logp_N = torch.empty(rows, dtype=head.out_dtype, device=h_ND.device)
    lse_N = torch.empty_like(logp_N)
    at_once = rows_at_once(rows, chunk_rows, h_ND.device)
    buffer = _buffer(at_once, tiles[0].stop, head)
    for part in _chunks(rows, at_once):
        h, target = h_ND[part], target_N[part]
        running = _Running.start(h.shape[0], head)
        for columns in tiles:
            tile = head.logits(h, columns, _view(buffer, h.shape[0], columns))
            running.add(tile, target, columns)
        lse_N[part] = running.lse()
        logp_N[part] = running.picked_N - lse_N[part]
    return logp_N, lse_N


@dataclass
class _Rows:
    """One chunk of rows on its way through the tiles."""

    part: slice
    h_ND: Tensor
    target_N: Tensor
    c_N: Tensor
    weighted_ND: Tensor  # -c h

    @staticmethod
    def take(part: slice, h_ND: Tensor, target_N: Tensor, c_N: Tensor) -> _Rows:
        h, c = h_ND[part], c_N[part]
        return _Rows(part, h, target_N[part], c, (h * -c[:, None]).to(h.dtype))


@dataclass
class Gradients:
    """Sums of d (sum_n c_n logp_n) over tiles; a part that nobody needs is None."""

    h_ND: Tensor | None
    weight_VD: Tensor | None
    bias_V: Tensor | None

    @staticmethod
    def zeros(head: Head, rows: int, needs: tuple[bool, bool, bool]) -> Gradients:
        vocab_size, width = head.weight_VD.shape
        new = head.weight_VD.new_zeros
        return Gradients(
            new(rows, width, dtype=head.out_dtype) if needs[0] else None,
            new(vocab_size, width, dtype=head.out_dtype) if needs[1] else None,
            new(vocab_size, dtype=head.out_dtype) if needs[2] else None,
        )

    def add(self, head: Head, prob_NC: Tensor, rows: _Rows, columns: slice) -> None:
        """Adds one tile; ``prob_NC`` (softmax) is overwritten.

        d logp / d logits = onehot - softmax. The weight c goes to the thin factors, [N, D], not
        to the tile.
        """
        index, inside = _in_tile(rows.target_N, columns)
        prob_NC.scatter_add_(1, index, -inside.to(prob_NC.dtype))
        excess = prob_NC.to(rows.weighted_ND.dtype)
        if self.h_ND is not None:
            _add_product(self.h_ND[rows.part], excess, head.weight_VD[columns])
        if self.weight_VD is not None:
            _add_product(self.weight_VD[columns], excess.T, rows.weighted_ND)
        if self.bias_V is not None:
            self.bias_V[columns] -= rows.c_N @ prob_NC

    def finish(self, rows: _Rows) -> None:
        """Weighs the hidden states' part once all tiles of its rows are in."""
        if self.h_ND is not None:
            self.h_ND[rows.part] *= -rows.c_N[:, None]


def _add_product(into: Tensor, a: Tensor, b: Tensor) -> None:
    if into.dtype == a.dtype:
        into.addmm_(a, b)
    else:
        into += a @ b


def tiled_gradients(
    head: Head,
    h_ND: Tensor,
    target_N: Tensor,
    lse_N: Tensor,
    c_N: Tensor,
    chunk_rows: int,
    needs: tuple[bool, bool, bool],
) -> Gradients:
    """Gradients of sum_n c_n logp_n from a known log-sum-exp: three products a tile."""
    tiles = head.tiles()
    gradients = Gradients.zeros(head, h_ND.shape[0], needs)
    at_once = rows_at_once(h_ND.shape[0], chunk_rows, h_ND.device)
    buffer = _buffer(at_once, tiles[0].stop, head)
    for part in _chunks(h_ND.shape[0], at_once):
        rows = _Rows.take(part, h_ND, target_N, c_N)
        for columns in tiles:
            tile = head.logits(rows.h_ND, columns, _view(buffer, rows.h_ND.shape[0], columns))
            tile.sub_(lse_N[part, None]).exp_()
            gradients.add(head, tile, rows, columns)
        gradients.finish(rows)
    return gradients


def tiled_logprob_and_gradients(
    head: Head,
    h_ND: Tensor,
    target_N: Tensor,
    c_N: Tensor,
    chunk_rows: int,
    needs: tuple[bool, bool, bool],
) -> tuple[Tensor, Gradients]:
    """(logp [N], gradients of sum_n c_n logp_n) with weights known beforehand.

    The exponentials of ``chunk_rows`` rows are kept from the forward half to the backward half:
    three products a tile in all, instead of the four of a pass that has to wait for its weights.
    """
    tiles = head.tiles()
    gradients = Gradients.zeros(head, h_ND.shape[0], needs)
    logp_N = torch.empty(h_ND.shape[0], dtype=head.out_dtype, device=h_ND.device)
    at_once = rows_at_once(h_ND.shape[0], chunk_rows, h_ND.device)
    buffer = _buffer(at_once, tiles[-1].stop, head)
    for part in _chunks(h_ND.shape[0], at_once):
        rows = _Rows.take(part, h_ND, target_N, c_N)
        n = rows.h_ND.shape[0]
        # tile after tile in one flat buffer, each of them contiguous
        kept = [_view(buffer[n * columns.start :], n, columns) for columns in tiles]
        running = _Running.start(n, head)
        tops = [
            running.add(head.logits(rows.h_ND, columns, tile), rows.target_N, columns)
            for columns, tile in zip(tiles, kept, strict=True)
        ]
        lse = running.lse()
        logp_N[part] = running.picked_N - lse
        for columns, tile, top in zip(tiles, kept, tops, strict=True):
            tile *= torch.exp(top - lse)[:, None]
            gradients.add(head, tile, rows, columns)
        gradients.finish(rows)
    return logp_N, gradients

"""Batches whose content depends on (seed, number of the batch, rank) and nothing else.

So a resumed run starts at any batch without replaying, and the number of worker processes changes
nothing. Shapes: B sequences, L positions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import datasets
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from lkf_plugin.data.prepare import PreparedData
from lkf_plugin.errors import UserError

Batch = dict[str, Tensor]
_COLUMNS = ("input_ids", "attention_mask")


def _pieces(dataset: datasets.Dataset, column: str) -> list[np.ndarray]:
    """The column's chunks [n, L] as views of the memory-mapped file."""
    chunks = []
    for chunk in dataset.data.table.column(column).chunks:
        if len(chunk):
            chunks.append(chunk.flatten().to_numpy(zero_copy_only=True).reshape(len(chunk), -1))
    return chunks


class TokenBatches:
    """Rows of a prepared data set by number, without the overhead of its row access.

    Both columns are read into memory in their small types (uint16 or int32 ids, int8 mask) if
    they need no more than ``memory_limit`` bytes; a larger set is read row by row from the
    memory-mapped file.

    Args:
        dataset: Fixed-length columns ``input_ids`` and ``attention_mask``.
        memory_limit: Bytes.
    """

    def __init__(self, dataset: datasets.Dataset, memory_limit: int = 4 << 30) -> None:
        # A selection or a shuffle is an index beside the table: write it out first.
        self.dataset = dataset.flatten_indices() if dataset._indices is not None else dataset
        self._load(memory_limit)

    def _load(self, memory_limit: int) -> None:
        self.memory_limit = memory_limit
        self.columns = {name: _pieces(self.dataset, name) for name in _COLUMNS}
        sizes = [len(piece) for piece in self.columns["input_ids"]]
        if (
            sum(piece.nbytes for pieces in self.columns.values() for piece in pieces)
            <= memory_limit
        ):
            self.columns = {
                name: [np.concatenate(pieces)] if pieces else []
                for name, pieces in self.columns.items()
            }
            sizes = [sum(sizes)]
        self.ends = np.cumsum(sizes)

    def __getstate__(self) -> dict[str, Any]:
        # A spawned worker gets the path of the data, not the data.
        return {"dataset": self.dataset, "memory_limit": self.memory_limit}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.dataset = state["dataset"]
        self._load(state["memory_limit"])

    def __len__(self) -> int:
        return len(self.dataset)

    def batch(self, indices: Sequence[int] | Tensor) -> Batch:
        """Rows as ``input_ids`` int64 [B, L] and ``attention_mask`` float32 [B, L]."""
        rows = np.asarray(indices, dtype=np.int64)
        assert rows.size and 0 <= rows.min() and rows.max() < len(self)
        parts = {name: self._gather(pieces, rows) for name, pieces in self.columns.items()}
        return {
            "input_ids": torch.from_numpy(parts["input_ids"].astype(np.int64)),
            "attention_mask": torch.from_numpy(parts["attention_mask"].astype(np.float32)),
        }

    def _gather(self, pieces: list[np.ndarray], rows: np.ndarray) -> np.ndarray:
        if len(pieces) == 1:
            return pieces[0][rows]
        which = np.searchsorted(self.ends, rows, side="right")
        return np.stack(
            [
                pieces[piece][row - self.ends[piece]]  # counted from the piece's end: negative
                for piece, row in zip(which, rows, strict=True)
            ]
        )


class StepOrder:
    """Which rows form micro-batch number i on a rank: a pure function of (seed, i, rank).

    Epoch e = i // batches_per_epoch shuffles the n rows by a generator seeded from (seed, e).
    Batch i of the epoch is the i-th run of ``batch_size * world_size`` rows, shared out among the
    ranks in order; the remainder of an epoch is left out.

    Raises:
        UserError: There are fewer rows than one such run.
    """

    def __init__(
        self, n: int, batch_size: int, seed: int, rank: int = 0, world_size: int = 1
    ) -> None:
        assert 0 <= rank < world_size and batch_size > 0
        self.n, self.batch_size, self.seed = n, batch_size, seed
        self.rank, self.world_size = rank, world_size
        self.batches_per_epoch = n // (batch_size * world_size)
        if self.batches_per_epoch == 0:
            raise UserError(
                f"The training data has {n} sequences, fewer than one batch of {batch_size} on "
                f"{world_size} device(s): lower loader.batch_size or give more text."
            )
        self._epoch = -1
        self._permutation = torch.empty(0, dtype=torch.int64)

    def _shuffled(self, epoch: int) -> Tensor:
        if epoch != self._epoch:
            digest = hashlib.sha256(f"{self.seed}/{epoch}".encode()).digest()
            generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
            self._permutation = torch.randperm(self.n, generator=generator)
            self._epoch = epoch
        return self._permutation

    def indices(self, i: int) -> Tensor:
        """Row numbers [B] of micro-batch i >= 0."""
        epoch, inside = divmod(i, self.batches_per_epoch)
        start = (inside * self.world_size + self.rank) * self.batch_size
        return self._shuffled(epoch)[start : start + self.batch_size]


def _my_share(start: int, stop: int | None) -> Iterator[int]:
    """Every K-th number from ``start`` for worker process w of K, all in the main process.

    The loader takes the workers' numbers in turn.
    """
    worker = get_worker_info()
    first, step = (worker.id, worker.num_workers) if worker else (0, 1)
    number = start + first
    while stop is None or number < stop:
        yield number
        number += step


class TrainStream(IterableDataset[Batch]):
    """Training batches from number ``start_batch`` on, without end."""

    def __init__(self, batches: TokenBatches, order: StepOrder, start_batch: int) -> None:
        self.batches, self.order, self.start_batch = batches, order, start_batch

    def __iter__(self) -> Iterator[Batch]:
        for number in _my_share(self.start_batch, None):
            yield self.batches.batch(self.order.indices(number))


class ValidStream(IterableDataset[Batch]):
    """Batches of consecutive rows in fixed order, the last partial, dealt to the ranks in turn.

    Batch i of a rank is batch ``i * world_size + rank`` of all: the batches are the same for any
    number of processes, and so is what is drawn for each.
    """

    def __init__(self, batches: TokenBatches, batch_size: int, rank: int, world_size: int) -> None:
        self.batches, self.batch_size = batches, batch_size
        there = -(-len(batches) // batch_size)
        if there < world_size:
            raise UserError(
                f"The validation data has {len(batches)} sequences, {there} batches of "
                f"{batch_size} for {world_size} devices: lower loader.eval_batch_size, use fewer "
                "devices or give more text."
            )
        self.numbers = range(rank, there, world_size)

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[Batch]:
        for number in _my_share(0, len(self)):
            start = self.numbers[number] * self.batch_size
            stop = min(start + self.batch_size, len(self.batches))
            yield self.batches.batch(torch.arange(start, stop))


def _loader(
    stream: IterableDataset[Batch], num_workers: int, pin_memory: bool
) -> DataLoader[Batch]:
    return DataLoader(
        stream,
        batch_size=None,
        num_workers=num_workers,
        pin_memory=pin_memory and torch.cuda.is_available(),
        persistent_workers=num_workers > 0,
    )


def train_loader(
    prepared: PreparedData,
    batch_size: int,
    seed: int,
    start_batch: int = 0,
    rank: int = 0,
    world_size: int = 1,
    num_workers: int = 0,
    pin_memory: bool = False,
) -> DataLoader[Batch]:
    """Endless training batches from micro-batch ``start_batch`` on, the same for any workers.

    Args:
        prepared: With its ``train`` split.
        batch_size: B, on one device.
        seed: Decides the order of rows.
        start_batch: Micro-batches already done (optimizer steps times accumulation).
        rank: This device's number.
        world_size: Number of devices.
        num_workers: Worker processes; 0 reads in the main process.
        pin_memory: Page-locked memory, where there is a GPU.

    Raises:
        UserError: The data is smaller than one batch on all devices.
    """
    assert prepared.train is not None
    batches = TokenBatches(prepared.train)
    order = StepOrder(len(batches), batch_size, seed, rank, world_size)
    return _loader(TrainStream(batches, order, start_batch), num_workers, pin_memory)


def valid_loader(
    prepared: PreparedData,
    batch_size: int,
    rank: int = 0,
    world_size: int = 1,
    num_workers: int = 0,
    pin_memory: bool = False,
) -> DataLoader[Batch]:
    """One pass over the held-out rows in fixed order; arguments as in ``train_loader``."""
    assert prepared.valid is not None
    stream = ValidStream(TokenBatches(prepared.valid), batch_size, rank, world_size)
    return _loader(stream, num_workers, pin_memory)

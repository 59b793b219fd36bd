from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from omegaconf import DictConfig

from lkf_plugin.data import (
    PreparedData,
    StepOrder,
    TokenBatches,
    prepare,
    train_loader,
    valid_loader,
)
from lkf_plugin.data.store import write_split
from lkf_plugin.errors import UserError

Make = Callable[..., DictConfig]


@pytest.fixture
def rows(tmp_path: Path) -> datasets.Dataset:
    """3000 sequences of 4 ids, more than one chunk of the file."""
    ids = np.arange(12_000, dtype=np.int32).reshape(3000, 4)
    mask = (ids % 3 > 0).astype(np.int8)
    write_split(tmp_path / "r.dat", [(ids, mask)], 4, 12_001)
    return datasets.load_from_disk(tmp_path / "r.dat").with_format("torch")


@pytest.fixture
def prepared(make_config: Make) -> PreparedData:
    return prepare(make_config(8, valid_fraction=0.3))


@pytest.mark.parametrize("limit", [4 << 30, 0])
def test_batches_equal_the_data_set(rows: datasets.Dataset, limit: int) -> None:
    batches = TokenBatches(rows, memory_limit=limit)
    assert (len(batches.columns["input_ids"]) == 1) is (limit > 0)
    for source in (batches, pickle.loads(pickle.dumps(batches))):
        indices = [2999, 0, 1500, 1000, 999, 0]
        batch, expected = source.batch(indices), rows[indices]
        assert batch["input_ids"].dtype == torch.int64
        assert batch["attention_mask"].dtype == torch.float32
        assert torch.equal(batch["input_ids"], expected["input_ids"])
        assert torch.equal(batch["attention_mask"], expected["attention_mask"].float())


def test_batches_of_a_selection(rows: datasets.Dataset) -> None:
    chosen = rows.select([7, 3, 2500])
    batch = TokenBatches(chosen).batch(torch.tensor([2, 0]))
    assert batch["input_ids"][:, 0].tolist() == [10_000, 28]


def test_an_epoch_visits_each_row_once() -> None:
    order = StepOrder(23, 4, seed=1)
    assert order.batches_per_epoch == 5
    for epoch in range(2):
        seen = torch.cat([order.indices(epoch * 5 + i) for i in range(5)])
        assert len(seen.unique()) == 20


def test_order_is_a_pure_function() -> None:
    forward = StepOrder(50, 4, seed=3)
    expected = [forward.indices(i).tolist() for i in range(40)]
    backward = StepOrder(50, 4, seed=3)
    assert [backward.indices(i).tolist() for i in reversed(range(40))] == expected[::-1]
    assert StepOrder(50, 4, seed=4).indices(0).tolist() != expected[0]
    assert expected[:12] != expected[12:24]


def test_ranks_share_the_global_batch() -> None:
    alone = StepOrder(64, 8, seed=0)
    ranks = [StepOrder(64, 4, seed=0, rank=r, world_size=2) for r in range(2)]
    for i in range(20):
        together = torch.cat([order.indices(i) for order in ranks])
        assert torch.equal(together, alone.indices(i))


def test_fewer_rows_than_a_batch() -> None:
    with pytest.raises(UserError, match="lower loader.batch_size"):
        StepOrder(7, 4, seed=0, rank=0, world_size=2)


def first(loader: object, n: int) -> list[torch.Tensor]:
    return [batch["input_ids"] for batch in itertools.islice(loader, n)]  # type: ignore[call-overload]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_training_resumes_anywhere(prepared: PreparedData, num_workers: int) -> None:
    whole = first(train_loader(prepared, 3, seed=5), 30)
    resumed = first(train_loader(prepared, 3, seed=5, start_batch=11, num_workers=num_workers), 19)
    for a, b in zip(whole[11:], resumed, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_validation_keeps_order_and_the_last_batch(
    prepared: PreparedData, num_workers: int
) -> None:
    assert prepared.valid is not None
    rows = prepared.valid[:]["input_ids"]
    assert len(rows) % 4
    loader = valid_loader(prepared, 4, num_workers=num_workers)
    batches = [batch["input_ids"] for batch in loader]
    assert len(loader) == len(batches) == -(-len(rows) // 4)
    assert torch.equal(torch.cat(batches), rows)


def test_validation_ranks_cover_all_rows_once(prepared: PreparedData) -> None:
    assert prepared.valid is not None
    rows = prepared.valid[:]["input_ids"]
    for rank in range(3):
        loader = valid_loader(prepared, 4, rank=rank, world_size=3)
        batches = [batch["input_ids"] for batch in loader]
        alone = rows.split(4)[rank::3]  # whole batches of one process, dealt in turn
        assert len(loader) == len(batches) == len(alone)
        assert all(torch.equal(ours, one) for ours, one in zip(batches, alone, strict=True))


def test_more_devices_than_validation_rows(prepared: PreparedData) -> None:
    with pytest.raises(UserError, match="fewer devices"):
        valid_loader(prepared, 4, rank=99_999, world_size=100_000)

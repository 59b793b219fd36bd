from __future__ import annotations

import os
import time
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch

from lkf_plugin.data.store import (
    read_manifest,
    single_writer,
    split_file,
    write_manifest,
    write_split,
)
from lkf_plugin.files import write_atomically


@pytest.mark.parametrize(
    ("name", "split", "wrap", "expected"),
    [
        ("lm1b", "train", False, "lm1b_train_bs128_unwrapped.dat"),
        ("lm1b", "valid", False, "lm1b_test_bs128_unwrapped.dat"),
        ("text8", "valid", True, "text8_test_bs128_wrapped.dat"),
        ("wikitext103", "valid", True, "wikitext103_validation_bs128_wrapped.dat"),
    ],
)
def test_names_are_mdlms(name: str, split: str, wrap: bool, expected: str) -> None:
    assert split_file(name, split, 128, wrap) == expected


@pytest.mark.parametrize(("vocab_size", "kind"), [(65_536, "uint16"), (65_537, "int32")])
def test_split_comes_back(tmp_path: Path, vocab_size: int, kind: str) -> None:
    ids = np.array([[0, 1, vocab_size - 1], [5, 6, 7], [8, 9, 10]], dtype=np.int32)
    mask = np.array([[1, 1, 1], [1, 1, 0], [1, 0, 0]], dtype=np.int8)
    target = tmp_path / "x.dat"
    write_split(target, [(ids[:2], mask[:2]), (ids[2:], mask[2:])], 3, vocab_size)
    rows = datasets.load_from_disk(target)
    assert rows.features["input_ids"].feature.dtype == kind
    tensors = rows.with_format("torch")[:]
    assert tensors["input_ids"].dtype == torch.int64
    assert tensors["input_ids"].tolist() == ids.tolist()
    assert tensors["attention_mask"].tolist() == mask.tolist()
    assert [path.name for path in tmp_path.iterdir()] == ["x.dat"]


def test_failed_write_leaves_nothing(tmp_path: Path) -> None:
    def fail(path: Path) -> None:
        path.mkdir()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "a" / "x", fail)
    assert list((tmp_path / "a").iterdir()) == []


def test_slower_process_gives_way(tmp_path: Path) -> None:
    target = tmp_path / "x"

    def write(path: Path) -> None:
        path.mkdir()
        target.mkdir()
        (target / "first").touch()

    write_atomically(target, write)
    assert [path.name for path in target.iterdir()] == ["first"]


def test_manifest(tmp_path: Path) -> None:
    assert read_manifest(tmp_path) == {}
    write_manifest(tmp_path, {"word": "café"})
    write_manifest(tmp_path, {"word": "thé"})
    assert read_manifest(tmp_path) == {"word": "thé"}


def test_old_scratch_is_swept(tmp_path: Path) -> None:
    folder = tmp_path / "prepared"
    old, new = folder / ".part-old", folder / ".part-new"
    old.mkdir(parents=True)
    new.mkdir()
    long_ago = time.time() - 200_000
    os.utime(old, (long_ago, long_ago))
    with single_writer(folder):
        assert not old.exists() and new.exists()

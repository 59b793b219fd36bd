"""The folder of one prepared corpus: atomic writes, one writer at a time, a manifest.

Layout, which is where MDLM's ``get_dataset`` looks when ``data.cache_dir`` is the folder::

    {name}_train_bs{L}_{wrapped|unwrapped}.dat
    {name}_{test|validation}_bs{L}_{wrapped|unwrapped}.dat
    tokenizer/          not for text8
    manifest.json       what the digest covers, and counts
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from filelock import FileLock

from lkf_plugin.data.layout import Block
from lkf_plugin.files import write_atomically

_MDLM_TEST_NAMES = ("text8", "lm1b", "ag_news")


def split_file(name: str, split: str, length: int, wrap: bool) -> str:
    """Name of a split's folder (MDLM, ``get_dataset`` and ``get_dataloaders``).

    Args:
        name: ``data.train`` or ``data.valid``.
        split: ``train`` or ``valid``; MDLM calls the latter ``test`` for three corpora.
        length: L.
        wrap: ``data.wrap``.
    """
    mode = "train"
    if split == "valid":
        mode = "test" if name in _MDLM_TEST_NAMES else "validation"
    return f"{name}_{mode}_bs{length}_{'wrapped' if wrap else 'unwrapped'}.dat"


@contextmanager
def single_writer(folder: Path) -> Iterator[None]:
    """Holds the folder's lock, so that a second process waits for the work, not repeats it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.parent / f"{folder.name}.lock"):
        _sweep(folder)
        yield


def _sweep(folder: Path, older_than: float = 86_400.0) -> None:
    """Deletes what processes that were killed a day ago left half written."""
    for scratch in (*folder.glob(".part-*"), *folder.parent.glob(".part-*")):
        if time.time() - scratch.stat().st_mtime > older_than:
            shutil.rmtree(scratch, ignore_errors=True)


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest; empty where there is none yet."""
    path = folder / "manifest.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Replaces the manifest in one step."""
    text = json.dumps(manifest, indent=2, ensure_ascii=False)
    write_atomically(folder / "manifest.json", text + "\n")


def write_split(target: Path, blocks: Iterable[Block], length: int, vocab_size: int) -> None:
    """Writes blocks ``(ids_BL, mask_BL)`` as a saved data set, never holding more than one.

    The columns are fixed-size lists: ``input_ids`` of uint16 where V allows it, else int32, and
    ``attention_mask`` of int8. In torch format both come out as int64.
    """
    small = vocab_size <= np.iinfo(np.uint16).max + 1
    columns = {"input_ids": "uint16" if small else "int32", "attention_mask": "int8"}
    features = datasets.Features(
        {name: datasets.Sequence(datasets.Value(t), length=length) for name, t in columns.items()}
    )
    schema = features.arrow_schema

    def save(path: Path) -> None:
        stream = path.parent / "rows.arrow"
        with pa.OSFile(str(stream), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
            for block in blocks:
                arrays = [
                    pa.FixedSizeListArray.from_arrays(pa.array(part.astype(kind).ravel()), length)
                    for part, kind in zip(block, columns.values(), strict=True)
                ]
                writer.write_batch(pa.record_batch(arrays, schema=schema))
        datasets.Dataset.from_file(str(stream)).save_to_disk(path)

    write_atomically(target, save)

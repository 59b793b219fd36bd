"""The folder of one prepared corpus: atomic writes, one writer at a time, a manifest.

Layout, which is where MDLM's ``get_dataset`` looks when ``data.cache_dir`` is the folder::

    {name}_train_bs{L}_{wrapped|unwrapped}.dat
    {name}_{test|validation}_bs{L}_{wrapped|unwrapped}.dat
    tokenizer/          not for text8
    manifest.json       what the digest covers, and counts
"""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from filelock import FileLock

from lkf_plugin.data.layout import Block
from lkf_plugin.errors import UserError
from lkf_plugin.files import write_atomically

_LOG = logging.getLogger(__name__)
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
    """Holds the folder's lock, so that a second process waits for the work, not repeats it.

    Raises:
        UserError: Nothing can be written there.
    """
    lock = FileLock(folder.parent / f"{folder.name}.lock")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except OSError as error:
        raise UserError(
            f"Prepared data cannot be written to {folder.parent} ({error.strerror or error}): set "
            "data.cache_dir (or LKF_CACHE) to a folder that can be written."
        ) from error
    try:
        _sweep(folder)
        yield
    finally:
        lock.release()


def _sweep(folder: Path, older_than: float = 86_400.0) -> None:
    """Deletes what processes that were killed a day ago left half written."""
    for scratch in (*folder.glob(".part-*"), *folder.parent.glob(".part-*")):
        if time.time() - scratch.stat().st_mtime > older_than:
            shutil.rmtree(scratch, ignore_errors=True)


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest; empty where there is none yet, or a damaged one, which then is made anew."""
    path = folder / "manifest.json"
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError:
        _LOG.warning("%s is damaged: the data is prepared again.", path)
        return {}
    except OSError as error:
        raise UserError(
            f"{path} cannot be read ({error.strerror or error}): set data.cache_dir (or LKF_CACHE) "
            "to a folder that can be written."
        ) from error
    whole = isinstance(manifest, dict) and isinstance(manifest.get("splits", {}), dict)
    return manifest if whole else {}


def load_splits(
    folder: Path, splits: Sequence[str]
) -> tuple[dict[str, Any], dict[str, datasets.Dataset]] | None:
    """Manifest and data sets, if all the splits are there; nothing is written or locked.

    A damaged split is deleted, so that it is written anew.
    """
    manifest = read_manifest(folder)
    loaded = {}
    for split in splits:
        entry = manifest.get("splits", {}).get(split)
        if entry is None:
            return None
        try:
            loaded[split] = datasets.load_from_disk(folder / entry["file"])
        except Exception as error:  # the library raises anything from KeyError to ArrowInvalid
            _LOG.warning("%s is damaged (%s): it is prepared again.", folder, type(error).__name__)
            shutil.rmtree(folder, ignore_errors=True)
            return None
    return manifest, loaded


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

"""The record of a run's settings, and what may change when it is resumed.

``config.yaml`` in the run folder holds the resolved settings, ``run.json`` what they met there:
versions and the digest of the data. Both are plain text; nothing in them is ever executed.
"""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

import lightning
import torch
import yaml
from omegaconf import DictConfig, OmegaConf

from lkf_plugin.errors import UserError

CONFIG, RECORD = "config.yaml", "run.json"

# Everything else decides the numbers of a run, so it must stay as it was.
FREE = (
    "mode",
    "run_dir",
    "eval",
    "sampling",
    "decode",
    "logger",
    "callbacks",
    "wandb",
    "checkpointing",
    "init",
    "experiment",
    "trainer.max_steps",
    "trainer.log_every_n_steps",
    "trainer.limit_val_batches",
    "trainer.val_check_interval",
    "trainer.num_sanity_val_steps",
    "lr_scheduler.total_steps",
    "loader.num_workers",
    "loader.pin_memory",
    "loader.eval_batch_size",
    "loader.eval_global_batch_size",
    "data.cache_dir",
)


def plain(config: DictConfig) -> dict[str, Any]:
    """The settings as plain containers, interpolations worked out."""
    container = OmegaConf.to_container(config, resolve=True)
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items()}


def flatten(tree: Any, prefix: str = "") -> dict[str, Any]:
    """``{'a': {'b': 1}}`` as ``{'a.b': 1}``; lists are values."""
    if not isinstance(tree, dict):
        return {prefix: tree}
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat.update(flatten(value, f"{prefix}.{key}" if prefix else str(key)))
    return flat


def is_free(key: str) -> bool:
    """Whether a setting may change between the parts of one run."""
    return any(key == free or key.startswith(f"{free}.") for free in FREE)


def write_atomically(path: Path, text: str) -> None:
    """Replaces a text file in one stroke."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.tmp")
    scratch.write_text(text, encoding="utf-8")
    os.replace(scratch, path)


def save_settings(config: DictConfig, record: dict[str, Any], folder: Path) -> None:
    """Writes ``config.yaml`` and ``run.json``."""
    write_atomically(folder / CONFIG, yaml.safe_dump(plain(config), sort_keys=False))
    write_atomically(folder / RECORD, json.dumps(record, indent=2) + "\n")


def load_settings(folder: Path) -> dict[str, Any] | None:
    """The settings saved in a run folder, or None."""
    path = folder / CONFIG
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else None


def run_record(host: str, data_digest: str) -> dict[str, Any]:
    """What a number depends on beside the settings."""
    from lkf_plugin import __version__

    return {
        "host": host,
        "data_digest": data_digest,
        "versions": {
            "lkf": __version__,
            "torch": torch.__version__,
            "lightning": lightning.__version__,
            "python": platform.python_version(),
        },
    }


def check_resume(config: DictConfig, data_digest: str, checkpoint: Path) -> None:
    """Refuses to go on with other settings or other data than the run began with.

    The run folder is the one above the checkpoint's folder.

    Raises:
        UserError: names the first difference and says what to do.
    """
    folder = checkpoint.parent.parent
    before = load_settings(folder)
    if before is None:
        raise UserError(
            f"{folder} has no {CONFIG} to compare the settings with: bring it back, or start from "
            "these weights elsewhere (another run_dir, init.from_checkpoint)."
        )
    old, new = flatten(before), flatten(plain(config))
    for key in sorted(old.keys() | new.keys()):
        if not is_free(key) and old.get(key) != new.get(key):
            raise UserError(
                f"{key} was {old.get(key)} when the run in {folder} began and is {new.get(key)} "
                "now: set it back to go on, or give another run_dir to begin a new run."
            )
    path = folder / RECORD
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if known.get("data_digest", data_digest) != data_digest:
        raise UserError(
            f"The training data is not what it was when the run in {folder} began: bring it back "
            "to go on, or give another run_dir to begin a new run."
        )

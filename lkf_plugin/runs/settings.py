"""The record of a run's settings, and what may change when it is resumed.

``config.yaml`` in the run folder holds the resolved settings, ``run.json`` what they met there:
versions and the digest of the data. Both are plain text; nothing in them is ever executed.
"""

from __future__ import annotations

import json
import os
import platform
import tempfile
from pathlib import Path
from typing import Any

import lightning
import torch
import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lkf_plugin.config.derived import END, keep_derived, saved_run, settle_schedule
from lkf_plugin.config.paths import NAMES_OR_FOLDERS, corpus_paths
from lkf_plugin.errors import UserError
from lkf_plugin.files import write_atomically
from lkf_plugin.methods.method import NONE, method_of
from lkf_plugin.ranks import is_first
from lkf_plugin.runs.identity import ONE_LATENT, USUAL_PLACES

CONFIG, RECORD = "config.yaml", "run.json"

# What runs of a latent-kernel network mean that began before these settings were there.
MEANT: dict[str, Any] = {
    f"model.{key}": value for key, value in (ONE_LATENT | USUAL_PLACES).items()
}
MEANT |= {"init.latents": None, "init.latents_steps": 150}

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
    "init.from_checkpoint",
    "method.teacher",  # whose weights' digest is compared
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


def write_or_keep(path: Path, text: str) -> None:
    """Writes a result that took long to make; where that fails, keeps it elsewhere.

    Raises:
        UserError: says why, and where the result is now.
    """
    try:
        write_atomically(path, text)
    except OSError as error:
        handle, name = tempfile.mkstemp(prefix=f"{path.stem}-", suffix=path.suffix)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        raise UserError(
            f"{path} could not be written ({error.strerror}): what was made is kept in {name}."
        ) from error


def save_settings(config: DictConfig, record: dict[str, Any], folder: Path) -> None:
    """Writes ``config.yaml`` and ``run.json``."""
    write_atomically(folder / CONFIG, yaml.safe_dump(plain(config), sort_keys=False))
    write_atomically(folder / RECORD, json.dumps(record, indent=2) + "\n")


def load_settings(folder: Path) -> dict[str, Any] | None:
    """The settings saved in a run folder, or None.

    Raises:
        UserError: the file is damaged, or holds interpolations: they were worked out when it was
            written, and none is worked out for a file that comes from elsewhere.
    """
    path = folder / CONFIG
    if not path.is_file():
        return None
    try:
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _damaged(path) from error
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror or error}).") from error
    if not isinstance(settings, dict) or not isinstance(settings.get("model"), dict):
        raise _damaged(path)
    for key, value in flatten(settings).items():
        if "${" in f"{key}{value}":
            raise UserError(
                f"{path} has {key}={value}: a run folder's settings hold values only, so take the "
                "`${` out, or take a folder that this program wrote."
            )
    return _renamed(settings)


def _renamed(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of earlier versions under the keys of this one: ``baseline`` became ``method``."""
    if "method" not in settings and isinstance(settings.get("baseline"), dict):
        method = settings.pop("baseline")
        if method.get("name") == "none":
            method["name"] = NONE
        settings["method"] = method
    return settings


def _damaged(path: Path) -> UserError:
    return UserError(
        f"{path} is damaged: bring it back from a copy, or give another run_dir to begin a new run."
    )


def load_record(folder: Path) -> dict[str, Any]:
    """What ``run.json`` of a run folder holds; empty where it is missing or damaged.

    Nothing is lost with it: checkpoints carry the digest of the data, and the next part of the
    run writes it anew.
    """
    path = folder / RECORD
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (ValueError, OSError, RecursionError):
        record = None
    if not isinstance(record, dict):
        print(f"{path} is damaged: passed over", flush=True)
        return {}
    return record


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


def keep_as_begun(config: DictConfig) -> None:
    """Gives a run that goes on the derived settings that it began with, in place."""
    try:
        folder = saved_run(config)
        saved = None if folder is None else load_settings(folder)
        if saved is not None:
            keep_derived(config, saved)
    except OmegaConfBaseException:
        return  # validation says which setting cannot be worked out


def check_resume(
    config: DictConfig,
    data_digest: str,
    checkpoint: Path,
    step: int,
    known_digest: str | None = None,
) -> None:
    """Refuses to go on with other settings or other data than the run began with.

    The run folder is the one above the checkpoint's folder.

    Args:
        config: the present settings.
        data_digest: of the present data.
        checkpoint: to go on from.
        step: its optimizer step.
        known_digest: of the run's data, as the checkpoint says; else ``run.json`` does.

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
    meant = {f"method.{key}": value for key, value in method_of(config).meant.items()}
    old, new = meant | flatten(before), flatten(plain(config))
    if old.get("model.type") == "lkf":
        old = {**MEANT, "model.sticky": new.get("model.sticky"), **old}
    paths = {*corpus_paths(new.get("data.kind")), *NAMES_OR_FOLDERS}
    for key in sorted(old.keys() | new.keys()):
        if not is_free(key) and not _same(old.get(key), new.get(key), key in paths):
            raise UserError(
                f"{key} was {old.get(key)} when the run in {folder} began and is {new.get(key)} "
                "now: set it back to go on, or give another run_dir to begin a new run."
            )
    known = known_digest or load_record(folder).get("data_digest", data_digest)
    if known != data_digest:
        raise UserError(
            f"The training data is not what it was when the run in {folder} began: bring it back "
            "to go on, or give another run_dir to begin a new run."
        )
    if END in old and old[END] != new.get(END):
        _settle_schedule(config, before, step)


def _settle_schedule(config: DictConfig, before: dict[str, Any], step: int) -> None:
    sentence = settle_schedule(config, before, step)
    if sentence and is_first():
        print(sentence, flush=True)


def _same(old: Any, new: Any, is_path: bool) -> bool:
    """Whether a setting is what it was; older runs hold paths as they were typed."""
    if is_path and isinstance(old, str) and isinstance(new, str):
        here = [os.path.abspath(os.path.expanduser(path)) for path in (old, new)]
        return old == new or here[0] == here[1]
    return bool(old == new)

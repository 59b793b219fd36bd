"""Paths of a configuration, made absolute where the command was typed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from lkf_plugin.data.corpus import CORPORA, TRAIN
from lkf_plugin.data.tokenizer import BUILT_IN
from lkf_plugin.errors import UserError
from lkf_plugin.settings.fields import is_path
from lkf_plugin.settings.sentences import unresolved

OWN_PATHS = (
    "run_dir",
    "checkpointing.save_dir",
    "checkpointing.resume_ckpt_path",
    "eval.checkpoint_path",
    "init.from_checkpoint",
)
NAMES_OR_FOLDERS = ("eval.gen_ppl_eval_model_name_or_path", "data.tokenizer_name_or_path")


def resolve_paths(config: DictConfig, launch_folder: str | Path) -> None:
    """Makes paths absolute, relative to where the command was typed; in place.

    A judge or tokenizer that is the name of a folder here becomes that folder's path; any other
    name is left to be looked up as a name.

    Raises:
        UserError: a path that is none.
    """
    with open_dict(config):
        # a run's saved settings must mean the same wherever they are read
        for key in (*OWN_PATHS, *corpus_paths(_select(config, "data.kind"))):
            value = _select(config, key)
            if value and "://" not in value:
                OmegaConf.update(config, key, str(_absolute(key, value, launch_folder)))
        for key in NAMES_OR_FOLDERS:
            value = _select(config, key)
            if (
                value
                and not _is_tokenizer(config, key, value)
                and _is_folder(_absolute(key, value, launch_folder))
            ):
                OmegaConf.update(config, key, str(_absolute(key, value, launch_folder)))


def corpus_paths(kind: str | None) -> list[str]:
    """Those keys of ``data`` that are paths; none for a kind that validation will refuse."""
    try:
        fields = CORPORA[str(kind)].Settings.model_fields
    except UserError:
        return []
    return [f"data.{name}" for name, field in fields.items() if is_path(field)]


def _is_tokenizer(config: DictConfig, key: str, value: str) -> bool:
    """Whether a name means a tokenizer that is no folder: the corpus's own, or a built-in one."""
    own = str(_select(config, "data.kind")).rpartition(".")[2]
    return key.startswith("data.") and value in (TRAIN, own, *BUILT_IN)


def _select(config: DictConfig, key: str) -> str | None:
    """A path, or None where there is none (validation says what it thinks of that)."""
    try:
        value: Any = OmegaConf.select(config, key)
    except OmegaConfBaseException as error:
        raise UserError(unresolved(key, error)) from error
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise UserError(f"{key}={value} must be a path.")


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a name too long for the file system is no folder
        return False


def _absolute(key: str, path: str, launch_folder: str | Path) -> Path:
    if "\0" in path:
        raise UserError(f"{key} must be a path: it holds a zero byte.")
    try:
        return Path(os.path.normpath(Path(launch_folder) / Path(path).expanduser()))
    except RuntimeError as error:  # ~name of nobody
        raise UserError(f"{key}={path} begins with the home folder of nobody here.") from error

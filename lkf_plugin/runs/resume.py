"""Which checkpoint a run goes on from, and how one folder never holds two runs."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from lkf_plugin.checkpoint_file import local_file, read_checkpoint, require_training_state
from lkf_plugin.errors import UserError
from lkf_plugin.ranks import is_first
from lkf_plugin.runs.identity import card_of_settings, compare, read_card
from lkf_plugin.train.checkpoint import BEST, LAST

_KEY = "checkpointing.resume_ckpt_path"
_NUMBERED = re.compile(r"^step-(\d+)\.ckpt$")


@dataclass(frozen=True)
class Resume:
    """A checkpoint to go on from, read once.

    Attributes:
        path: the file.
        checkpoint: its contents.
    """

    path: Path
    checkpoint: dict[str, Any]

    @property
    def step(self) -> int:
        """Its optimizer step."""
        return int(self.checkpoint["global_step"])


def find_resume(config: DictConfig) -> Resume | None:
    """The checkpoint to go on from; None where a run begins.

    ``last.ckpt`` of the run folder; without it the newest step file that is whole, which is said.

    Raises:
        UserError: a path that was given is not there or no local file, the checkpoint is damaged or
            holds weights alone, or a second run would begin in a used folder.
    """
    folder = local_file(config.checkpointing.save_dir, "checkpointing.save_dir") / "checkpoints"
    used = sorted(folder.glob("*.ckpt")) if folder.is_dir() else []
    given = config.checkpointing.resume_ckpt_path
    default = folder / LAST
    if not config.checkpointing.resume_from_ckpt or not given:
        if used:
            setting = f"{_KEY}=null" if not given else "checkpointing.resume_from_ckpt=false"
            raise UserError(
                f"{setting} begins a new run, and {folder} holds the checkpoints of another: give "
                "another run_dir, or delete that folder."
            )
        return None
    path = local_file(given, _KEY)
    if os.path.abspath(path) == os.path.abspath(default):
        return _read(default) if default.is_file() else _newest_whole(folder)
    if not path.is_file():
        raise UserError(
            f"There is no checkpoint at {_KEY}={path}: check the path, or leave the setting out to "
            "go on from the run folder's own or to begin a run."
        )
    if used and os.path.abspath(path.parent) != os.path.abspath(folder):
        raise UserError(
            f"{_KEY}={path} goes on from another folder, and {folder} holds checkpoints already: "
            "leave the setting out to go on from these, or give another run_dir."
        )
    return _read(path)


def check_card(config: DictConfig, resume: Resume) -> None:
    """Refuses settings of another network than the checkpoint's.

    The tokenizer is compared with the digest of the data, of which it is part.

    Raises:
        UserError: names the option and both values.
    """
    from lkf_plugin.runs.settings import plain

    card = read_card(resume.checkpoint, resume.path)
    if card is not None:
        compare(card, card_of_settings(plain(config)), resume.path, free=("tokenizer",))


def _read(path: Path) -> Resume:
    checkpoint = read_checkpoint(path)
    require_training_state(checkpoint, path)
    return Resume(path, checkpoint)


def _newest_whole(folder: Path) -> Resume | None:
    """From the step files, newest first, then from the best; None if there are none.

    Raises:
        UserError: there are some, and none is whole.
    """
    if not folder.is_dir():
        return None
    numbered = {int(m[1]): p for p in folder.iterdir() if (m := _NUMBERED.match(p.name))}
    paths = [numbered[step] for step in sorted(numbered, reverse=True)]
    paths += [folder / BEST] if (folder / BEST).is_file() else []
    damage = None
    for path in paths:
        try:
            resume = _read(path)
        except UserError as error:
            damage = error
            continue
        if is_first():
            print(f"{folder / LAST} is missing: going on from {path.name} beside it", flush=True)
        return resume
    if damage is not None:
        raise UserError(
            f"{folder / LAST} is missing and no checkpoint beside it is whole ({damage}): bring "
            "one back, or give another run_dir to begin a new run."
        )
    return None

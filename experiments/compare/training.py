"""Training the rows of a comparison, each by the command that a user would give."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from experiments.compare.rows import Row
from lkf_plugin.backbone.warm_start import read_checkpoint
from lkf_plugin.cli import config_folder
from lkf_plugin.config import register_resolvers
from lkf_plugin.errors import UserError
from lkf_plugin.modes.ppl_eval import file_digest
from lkf_plugin.runs.settings import load_settings, write_atomically
from lkf_plugin.train.checkpoint import BEST, LAST

ROOT = config_folder().parent  # of the checkout, where main.py is
STARTED_FROM = "started_from.sha256"


def train_row(
    out: Path, rows: Mapping[str, Row], name: str, seed: int, steps: int | None = None
) -> Path:
    """Trains a row into ``out/name``, and first the row that it starts from, unless complete.

    Args:
        out: folder of the comparison.
        rows: all rows by name.
        name: the row.
        seed: of the training.
        steps: instead of the recipe's.

    Returns:
        The run folder.

    Raises:
        UserError: the training failed, or a run there had another seed, length or start.
    """
    row, folder = rows[name], out / name
    overrides = [*row.overrides, f"seed={seed}"]
    trainer = _composed(row.overrides).trainer
    if steps is not None:
        every = min(steps, trainer.val_check_interval)  # at least one validation, for best.ckpt
        overrides += [f"trainer.max_steps={steps}", f"trainer.val_check_interval={every}"]
    if row.start is not None:
        best = train_row(out, rows, row.start, seed, steps) / "checkpoints" / BEST
        overrides.append(f"init.from_checkpoint={best.resolve()}")
        _check_start(folder, best)
    _check_asked(folder, seed, trainer.max_steps if steps is None else steps)
    if not complete(folder):
        _train(folder, overrides)
    return folder


def complete(folder: Path) -> bool:
    """Whether the last checkpoint stands at the run's last step."""
    settings, last = load_settings(folder), folder / "checkpoints" / LAST
    if settings is None or not last.is_file():
        return False
    return read_checkpoint(last)["global_step"] >= settings["trainer"]["max_steps"]


def _train(folder: Path, overrides: Sequence[str]) -> None:
    command = [sys.executable, "main.py", *overrides, f"run_dir={folder.resolve()}"]
    print("python", *command[1:], flush=True)
    environment = {"OMP_NUM_THREADS": "2", **os.environ}
    if subprocess.run(command, cwd=ROOT, env=environment).returncode:
        raise UserError(f"training in {folder} failed: its own message is above.")


def _composed(overrides: Sequence[str]) -> DictConfig:
    register_resolvers()
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        return compose("config", overrides=list(overrides))


def _check_asked(folder: Path, seed: int, steps: int) -> None:
    """A run of another seed or length is neither taken for this one nor trained on."""
    settings = load_settings(folder)
    if settings is None:
        return
    for key, before, now in (
        ("seed", settings["seed"], seed),
        ("trainer.max_steps", settings["trainer"]["max_steps"], steps),
    ):
        if before != now:
            raise UserError(
                f"the run in {folder} has {key}={before} and {now} was asked for: give another "
                "--out, or delete that folder."
            )


def _check_start(folder: Path, best: Path) -> None:
    """Notes which checkpoint a new run starts from; refuses a run that started from another.

    A run that was brought in from elsewhere has no note and is taken as it is.
    """
    note, digest = folder / STARTED_FROM, file_digest(best)
    if load_settings(folder) is None:
        write_atomically(note, digest + "\n")
    elif note.is_file() and note.read_text(encoding="utf-8").strip() != digest:
        raise UserError(
            f"the run in {folder} started from another checkpoint than {best} is now: delete that "
            "folder to train it again."
        )

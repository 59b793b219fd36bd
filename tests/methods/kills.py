"""A run's checkpoints at every step, and the run as it was at an earlier one."""

from __future__ import annotations

from pathlib import Path

KEEP = ("checkpointing.every_n_steps=1", "checkpointing.keep_last=9")


def last(folder: Path) -> Path:
    """The last checkpoint of a run folder."""
    return folder / "checkpoints" / "last.ckpt"


def back_to(folder: Path, step: int) -> None:
    """Removes every checkpoint that a kill after ``step`` would not have left."""
    for path in (folder / "checkpoints").glob("*.ckpt"):
        number = path.stem.removeprefix("step-")
        if not number.isdecimal() or int(number) > step:
            path.unlink()

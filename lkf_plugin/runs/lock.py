"""One training process a run folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from lkf_plugin.errors import UserError
from lkf_plugin.ranks import is_first

try:
    import fcntl
except ImportError:  # Windows has no flock
    fcntl = None  # type: ignore[assignment]


LOCK = ".lock"


@contextlib.contextmanager
def only_trainer_of(folder: Path) -> Iterator[None]:
    """Holds the folder's lock; the system lets go of it however the process ends.

    Processes of the same run on further devices and nodes take no lock. A folder that
    was made for the lock and has nothing else in it when the run fails is taken away again.

    Raises:
        UserError: another process trains in this folder.
    """
    if fcntl is None or not is_first():
        yield
        return
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(
                f"Another process is training in {folder}: wait for it, or give another run_dir."
            ) from error
        try:
            yield
        except BaseException:
            _take_away(made)
            raise


def _take_away(made: list[Path]) -> None:
    """Removes folders, inner ones first, as far as they hold nothing but a lock."""
    for folder in made:
        if any(name != LOCK for name in os.listdir(folder)):
            return
        (folder / LOCK).unlink(missing_ok=True)
        folder.rmdir()

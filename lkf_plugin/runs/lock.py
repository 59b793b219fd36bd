"""One training process a run folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from lkf_plugin.errors import UserError

try:
    import fcntl
except ImportError:  # Windows has no flock
    fcntl = None  # type: ignore[assignment]


@contextlib.contextmanager
def only_trainer_of(folder: Path) -> Iterator[None]:
    """Holds the folder's lock; the system lets go of it however the process ends.

    Processes of the same run on further devices (local rank above 0) take no lock.

    Raises:
        UserError: another process trains in this folder.
    """
    if (
        fcntl is None
        or int(os.environ.get("LOCAL_RANK", "0"))
        or int(os.environ.get("NODE_RANK", "0"))
    ):
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(
                f"Another process is training in {folder}: wait for it, or give another run_dir."
            ) from error
        yield

"""A checkpoint that was read to look at it, kept for the trainer that loads it next."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

# One at most: (absolute path, its time and size, contents).
_kept: list[tuple[str, tuple[int, int], dict[str, Any]]] = []


def keep(path: Path, checkpoint: dict[str, Any]) -> None:
    """Keeps the contents of a file until ``take`` asks for them."""
    _kept[:] = [(os.path.abspath(path), _stamp(path), checkpoint)]


def take(path: Any) -> dict[str, Any] | None:
    """The contents if they were kept and the file is as it was; they are forgotten."""
    if not _kept:
        return None
    name, stamp, checkpoint = _kept.pop()
    if name != os.path.abspath(path) or stamp != _stamp(Path(path)):
        return None
    return checkpoint


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size

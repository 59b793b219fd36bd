"""Writing a file or folder whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def write_atomically(target: Path, content: str | bytes | Callable[[Path], None]) -> None:
    """Puts a file or folder in place in one stroke; what was there stays until then.

    A process that is killed leaves only ``.part-*`` folders. Where a folder is written and another
    process was quicker, its result stays: both wrote the same.

    Args:
        target: the file or folder.
        content: text (UTF-8), bytes, or a function that is given a path, not yet there, on the
            same disk, and fills it.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=target.parent, prefix=".part-"))
    try:
        made = scratch / target.name
        if isinstance(content, str):
            made.write_text(content, encoding="utf-8")
        elif isinstance(content, bytes):
            made.write_bytes(content)
        else:
            content(made)
        try:
            os.replace(made, target)
        except OSError:
            if not (made.is_dir() and target.is_dir()):
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)

"""Digests of files and of plain values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lkf_plugin.errors import UserError


def value_digest(value: Any) -> str:
    """SHA-256 of a JSON-able value, independent of the order of dictionary keys."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def files_digest(paths: Iterable[Path]) -> str:
    """SHA-256 over the contents of files in the given order; their names do not matter.

    Raises:
        UserError: A file cannot be read.
    """
    total = hashlib.sha256()
    for path in paths:
        part = hashlib.sha256()
        try:
            with path.open("rb") as handle:
                while chunk := handle.read(1 << 20):
                    part.update(chunk)
        except OSError as error:
            raise UserError(f"{path} cannot be read ({error.strerror or error}).") from error
        total.update(part.digest())
    return total.hexdigest()

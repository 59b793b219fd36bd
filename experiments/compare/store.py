"""cells.json: what a comparison has measured so far.

An entry holds for one key, which names the checkpoint and every setting that its figures depend
on; under another key it begins anew. Each figure is written as soon as it is there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lkf_plugin.runs.settings import write_atomically

Entry = dict[str, Any]


class CellStore:
    """The file, read once.

    Attributes:
        entries: name of a row -> ``key``, ``cells`` (a dict each, with ``decode`` and ``J``) and
            figures of the row as a whole.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: dict[str, Entry] = {}
        if path.is_file():
            self.entries = json.loads(path.read_text(encoding="utf-8"))

    def entry(self, name: str, key: str) -> Entry:
        """The entry under this key; a fresh one where there is none or it has another key."""
        if self.entries.get(name, {}).get("key") != key:
            self.entries[name] = {"key": key, "cells": []}
        return self.entries[name]

    def save(self) -> None:
        """Replaces the file in one stroke."""
        write_atomically(self.path, json.dumps(self.entries, indent=2))

    def known(self, names: Iterable[str]) -> dict[str, Entry]:
        """The entries among ``names`` that have been measured, in that order."""
        return {name: self.entries[name] for name in names if name in self.entries}


def missing_cells(entry: Entry, plan: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """What of (decode, J) is not in the entry yet."""
    known = {(cell["decode"], cell["J"]) for cell in entry["cells"]}
    return [cell for cell in plan if cell not in known]


def all_cells(entries: dict[str, Entry]) -> list[dict[str, Any]]:
    """The cells of all entries."""
    return [cell for entry in entries.values() for cell in entry["cells"]]

"""Fills the tables of docs/performance.md from kept records of `make bench`.

    python benchmarks/page.py
    python benchmarks/page.py --records docs/records/performance --page docs/performance.md

The scripts write outputs/bench/NAME-THREADSt.json: copy the ones to show to the records' folder.
training-2t.json fills the block <!-- table: training-2t -->, and so on; the targets of all of them
fill <!-- table: targets -->.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sheet import TARGET_CAPTION, dependencies, markdown

from experiments.pages.command import page_command
from lkf_plugin.errors import UserError

TARGETS = "targets"


def blocks(records: Path) -> dict[str, str]:
    """Name of a block -> its content.

    Raises:
        UserError: no record is there, or a file is none.
    """
    paths = sorted(records.glob("*.json"))
    if not paths:
        raise UserError(f"{records} holds no record: copy outputs/bench/*.json of `make bench`.")
    found: dict[str, str] = {}
    asked: dict[int, dict[str, Any]] = {}  # by number of threads
    for path in paths:
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            tables = {one["name"]: one for one in record["tables"]}
            if targets := tables.pop(TARGETS, None):
                at = asked.setdefault(record["machine"]["threads"], {})
                at.update({(label, most): cells for label, most, *cells in targets["rows"]})
            parts = [dependencies(record), *(markdown(one) for one in tables.values())]
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path} is no record of a benchmark ({error!r}): remove it.") from None
        found[path.stem] = "\n\n".join(parts)
    if asked:
        found[TARGETS] = markdown(_side_by_side(asked))
    return found


def _side_by_side(asked: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """One table of the targets, with two columns for each number of threads."""
    columns = ["target", "at most"]
    for threads in asked:
        columns += [f"{threads} thread{'s' * (threads > 1)}", ""]
    keys = dict.fromkeys(key for found in asked.values() for key in found)
    rows = [
        [*key, *(cell for found in asked.values() for cell in found.get(key, ("", "")))]
        for key in keys
    ]
    return {"caption": TARGET_CAPTION, "columns": columns, "rows": rows, "note": ""}


if __name__ == "__main__":
    page_command(__doc__, Path("docs/records/performance"), Path("docs/performance.md"), blocks)

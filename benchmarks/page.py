"""Fills the tables of docs/performance.md from kept records of `make bench`.

    python benchmarks/page.py
    python benchmarks/page.py --records docs/records/performance --page docs/performance.md

The scripts write records to outputs/bench: copy the ones to show to the records' folder. The record
training-2t fills the block <!-- table: training-2t -->, and so on; the targets of all of them fill
<!-- table: targets -->.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sheet import KIND, TARGET_CAPTION, dependencies, markdown

from experiments.pages.command import page_command
from lkf_plugin.errors import UserError
from lkf_plugin.records.store import read_records

TARGETS = "targets"


def blocks(records: Path) -> dict[str, str]:
    """Name of a block -> its content.

    Raises:
        UserError: no record is there, a file is none of a benchmark, or two are of one name.
    """
    kept = read_records(records)
    if not kept:
        raise UserError(f"{records} holds no record: copy outputs/bench/*.json of `make bench`.")
    blocks: dict[str, str] = {}
    asked: dict[int, dict[str, Any]] = {}  # by number of threads
    for record in kept:
        if record.kind != KIND:
            raise UserError(f"{record.file_name} is no record of a benchmark: remove it.")
        if record.name in blocks:
            raise UserError(f"{records} holds two records called {record.name}: keep one of them.")
        tables = {one["name"]: one for one in record.series["tables"]}
        if targets := tables.pop(TARGETS, None):
            at = asked.setdefault(record.settings["threads"], {})
            at.update({(label, most): cells for label, most, *cells in targets["rows"]})
        parts = [dependencies(record), *(markdown(one) for one in tables.values())]
        blocks[record.name] = "\n\n".join(parts)
    if asked:
        blocks[TARGETS] = markdown(_side_by_side(asked))
    return blocks


def _side_by_side(asked: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """One table of the targets, with two columns for each number of threads."""
    columns = ["target", "at most"]
    for threads in asked:
        columns += [f"{threads} thread{'s' * (threads > 1)}", ""]
    keys = dict.fromkeys(key for cells in asked.values() for key in cells)
    rows = [
        [*key, *(cell for cells in asked.values() for cell in cells.get(key, ("", "")))]
        for key in keys
    ]
    return {"caption": TARGET_CAPTION, "columns": columns, "rows": rows, "note": ""}


if __name__ == "__main__":
    page_command(__doc__, Path("docs/records/performance"), Path("docs/performance.md"), blocks)

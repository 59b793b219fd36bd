"""Names of rows, and a store that keeps what it has under the same key only."""

from __future__ import annotations

from pathlib import Path

from experiments.compare.rows import row_label
from experiments.compare.store import CellStore, all_cells, missing_cells


def test_a_row_is_named_by_its_candidates() -> None:
    assert row_label("lkf-M4", "own") == "lkf-M4"
    assert row_label("lkf-M4", "best") == "lkf-M4, best of 4"
    assert row_label("lkf-M1", "best") == "lkf-M1, best of 8"
    assert row_label("ar", "best") == "ar, best of 8"


def test_what_is_known_is_kept_under_its_key(tmp_path: Path) -> None:
    path = tmp_path / "cells.json"
    store = CellStore(path)
    entry = store.entry("duo", "a n=4")
    entry["cells"].append({"decode": "own", "J": 2})
    store.save()
    plan = [("own", 1), ("own", 2), ("best", 2)]
    again = CellStore(path)
    assert missing_cells(again.entry("duo", "a n=4"), plan) == [("own", 1), ("best", 2)]
    assert all_cells(again.known(["ar", "duo"])) == [{"decode": "own", "J": 2}]
    assert missing_cells(again.entry("duo", "b n=4"), plan) == plan

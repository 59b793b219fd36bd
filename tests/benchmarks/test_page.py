"""docs/performance.md shows the benchmarks' records that are kept beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from page import blocks
from sheet import TARGET_CAPTION, TARGET_COLUMNS, Sheet, target

from experiments.pages.blocks import fill
from lkf_plugin.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "performance.md"
RECORDS = ROOT / "docs" / "records" / "performance"


def test_page_shows_its_records() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert fill(page, blocks(RECORDS)) == page


def test_printed_and_kept_tables_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    sheet = Sheet("one", "Counting", rounds=3)
    sheet.table("count", "Sheep", ["a", "b"], [["1", "2"]], "All white.")
    sheet.table("targets", TARGET_CAPTION, TARGET_COLUMNS, [target("sheep", 2, 1.5)])
    found = blocks(tmp_path / "outputs" / "bench")
    threads = torch.get_num_threads()
    name = f"one-{threads}t"
    assert list(found) == [name, "targets"]
    assert found[name].endswith("**Sheep**\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n\nAll white.")
    assert "rounds: 3" in found[name]
    printed = capsys.readouterr().out
    assert all(line in printed for line in found[name].splitlines())
    assert "| sheep | 2.00 | 1.50 | met |" in found["targets"]


def test_what_is_no_record_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no record"):
        blocks(tmp_path)
    (tmp_path / "odd.json").write_text(json.dumps({"tables": 3}), encoding="utf-8")
    with pytest.raises(UserError, match="odd.json is no record"):
        blocks(tmp_path)


def test_targets_stand_side_by_side_by_threads(tmp_path: Path) -> None:
    rows = {1: [["a", "2.00", "1.00", "met"]], 2: [["a", "2.00", "3.00", "**not met**"]]}
    rows[2].append(["b", "1.00", "0.50", "met"])
    for threads, asked in rows.items():
        record = {
            "machine": {"cpu": "C", "cores": 2, "threads": threads, "gpu": None},
            "torch": "2", "code": "0", "date": "today", "facts": {},
            "tables": [{"name": "targets", "rows": asked}],
        }
        (tmp_path / f"x-{threads}t.json").write_text(json.dumps(record), encoding="utf-8")
    found = blocks(tmp_path)["targets"].splitlines()[2:]
    assert found == [
        "| target | at most | 1 thread |  | 2 threads |  |",
        "| --- | --- | --- | --- | --- | --- |",
        "| a | 2.00 | 1.00 | met | 3.00 | **not met** |",
        "| b | 1.00 |  |  | 0.50 | met |",
    ]

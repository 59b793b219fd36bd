"""docs/performance.md shows the benchmarks' records that are kept beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from page import blocks
from sheet import KIND, TARGET_CAPTION, TARGET_COLUMNS, Sheet, target

from experiments.pages.blocks import fill
from lkf_plugin.errors import UserError
from lkf_plugin.records.record import Record
from lkf_plugin.records.store import write_record

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "performance.md"
RECORDS = ROOT / "docs" / "records" / "performance"


def sheet_record(name: str, threads: int, targets: list[list[str]]) -> Record:
    return Record(
        kind=KIND,
        name=f"{name}-{threads}t",
        subject={},
        settings={"benchmark": name, "threads": threads, "facts": {}},
        metrics={},
        series={"facts": [], "measured": {}, "tables": [{"name": "targets", "rows": targets}]},
        labels={"date": "today"},
        code="0",
        libraries={"torch": "2"},
        machine={"cpu": "C", "cores": 2, "threads": threads, "gpu": None},
    )


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
    write_record(replace(sheet_record("x", 1, []), kind="study"), tmp_path)
    with pytest.raises(UserError, match=r"x-1t-\w+.json is no record of a benchmark"):
        blocks(tmp_path)


def test_two_records_of_one_name_are_refused(tmp_path: Path) -> None:
    for rounds in ("3", "4"):
        record = sheet_record("x", 1, [])
        settings = {**record.settings, "facts": {"rounds": rounds}}
        write_record(replace(record, settings=settings), tmp_path)
    with pytest.raises(UserError, match="two records called x-1t"):
        blocks(tmp_path)


def test_targets_stand_side_by_side_by_threads(tmp_path: Path) -> None:
    rows = {1: [["a", "2.00", "1.00", "met"]], 2: [["a", "2.00", "3.00", "**not met**"]]}
    rows[2].append(["b", "1.00", "0.50", "met"])
    for threads, asked in rows.items():
        write_record(sheet_record("x", threads, asked), tmp_path)
    found = blocks(tmp_path)["targets"].splitlines()[2:]
    assert found == [
        "| target | at most | 1 thread |  | 2 threads |  |",
        "| --- | --- | --- | --- | --- | --- |",
        "| a | 2.00 | 1.00 | met | 3.00 | **not met** |",
        "| b | 1.00 |  |  | 0.50 | met |",
    ]

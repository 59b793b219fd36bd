"""docs/baselines.md shows the comparisons that are kept beside it."""

from __future__ import annotations

import runpy
import shutil
import sys
from pathlib import Path

import pytest

from experiments.compare.page import tables
from experiments.pages.blocks import fill
from experiments.paper.students import students
from lkf_plugin.errors import UserError

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "baselines.md"
RECORDS = ROOT / "docs" / "records"


def test_page_shows_its_records() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert fill(page, {**tables(RECORDS), **students(RECORDS)}) == page


def test_missing_records_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="agreetext"):
        tables(tmp_path)


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    page = tmp_path / "baselines.md"
    shutil.copy(PAGE, page)
    argv = ["baseline_tables.py", "--records", str(RECORDS), "--page", str(page)]
    monkeypatch.setattr(sys, "argv", argv)
    runpy.run_path(str(ROOT / "scripts" / "baseline_tables.py"), run_name="__main__")
    assert "unchanged" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", [*argv[:-1], str(tmp_path / "none.md")])
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(str(ROOT / "scripts" / "baseline_tables.py"), run_name="__main__")
    assert caught.value.code == 2

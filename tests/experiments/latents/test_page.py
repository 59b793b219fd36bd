"""docs/latents.md shows the kept records, and these keep the targets."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.latents.tables import read_study, tables
from experiments.latents.targets import verdicts
from experiments.pages.blocks import fill
from lkf_plugin.errors import UserError

ROOT = Path(__file__).resolve().parents[3]
RECORDS = ROOT / "docs" / "records" / "latents"


def test_the_page_shows_the_kept_records():
    page = (ROOT / "docs" / "latents.md").read_text(encoding="utf-8")
    assert fill(page, tables(RECORDS)) == page


def test_three_trees_keep_the_targets():
    runs = read_study("agreetext", RECORDS / "agreetext")
    assert len({run.seed for run in runs if run.arm == "tree"}) == 3
    assert [(what, value) for what, value, kept in verdicts(runs) if not kept] == []


def test_a_folder_without_records_is_told(tmp_path: Path):
    with pytest.raises(UserError, match="no folder of a study: copy records of agreetext"):
        tables(tmp_path)

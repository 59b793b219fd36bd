"""docs/tables shows what scripts/report.py makes of the records that are kept beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.tables.command import write_report

DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.mark.parametrize("corpus", ["agreetext", "sotu"])
def test_tables_show_their_records(tmp_path: Path, corpus: str) -> None:
    write_report(DOCS / "records" / "tables" / corpus, tmp_path, figures=False)
    made = (tmp_path / corpus / "tables.md").read_text(encoding="utf-8")
    assert (DOCS / "tables" / corpus / "tables.md").read_text(encoding="utf-8") == made

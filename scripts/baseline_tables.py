"""Fills the tables of docs/baselines.md from the comparisons' records.

    python scripts/baseline_tables.py
    python scripts/baseline_tables.py --records docs/records --page docs/baselines.md

A table stands between <!-- table: NAME --> and <!-- end -->; the rest of the page stays as it is.
scripts/compare_agreetext.py and scripts/compare_sotu.py make the records: copy their folders to
docs/records/agreetext and docs/records/sotu. The table of the students is of docs/records/tables,
which scripts/reproduce.py makes.
"""

from __future__ import annotations

from pathlib import Path

from experiments.compare.page import tables
from experiments.pages.command import page_command
from experiments.paper.students import students


def blocks(records: Path) -> dict[str, str]:
    """The comparisons' tables, and what distillation gained."""
    return {**tables(records), **students(records)}


if __name__ == "__main__":
    page_command(__doc__, Path("docs/records"), Path("docs/baselines.md"), blocks)

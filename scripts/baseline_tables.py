"""Fills the tables of docs/baselines.md from the comparisons' records.

    python scripts/baseline_tables.py
    python scripts/baseline_tables.py --records docs/records --page docs/baselines.md

A table stands between <!-- table: NAME --> and <!-- end -->; the rest of the page stays as it is.
scripts/compare_agreetext.py and scripts/compare_sotu.py make the records: copy their cells.json to
docs/records/agreetext/compare.json and docs/records/sotu/compare.json.
"""

from __future__ import annotations

from pathlib import Path

from experiments.compare.page import tables
from experiments.pages.command import page_command

if __name__ == "__main__":
    page_command(__doc__, Path("docs/records"), Path("docs/baselines.md"), tables)

"""Fills the tables of docs/synthetic.md from the studies' records.

    python scripts/synthetic_tables.py
    python scripts/synthetic_tables.py --records docs/records/synthetic --page docs/synthetic.md

A table stands between <!-- table: NAME --> and <!-- end -->; the rest of the page stays as it is.
scripts/synthetic.py makes the records: copy the ones to show from outputs/synthetic/records.
"""

from __future__ import annotations

from pathlib import Path

from experiments.pages.command import page_command
from experiments.studies.runs import read_records
from experiments.studies.tables import tables


def blocks(records: Path) -> dict[str, str]:
    """Name of a table -> the table."""
    return tables(read_records(records))


if __name__ == "__main__":
    page_command(__doc__, Path("docs/records/synthetic"), Path("docs/synthetic.md"), blocks)

"""Fills the tables of docs/baselines.md from the comparisons' records.

    python scripts/baseline_tables.py
    python scripts/baseline_tables.py --records docs/records --page docs/baselines.md

A table stands between <!-- table: NAME --> and <!-- end -->; the rest of the page stays as it is.
scripts/compare_agreetext.py and scripts/compare_sotu.py make the records: copy their cells.json to
docs/records/agreetext/compare.json and docs/records/sotu/compare.json.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lkf_plugin.compare.page import tables
from lkf_plugin.errors import UserError
from lkf_plugin.report.page_blocks import fill_file


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--records", type=Path, default=Path("docs/records"))
    parser.add_argument("--page", type=Path, default=Path("docs/baselines.md"))
    args = parser.parse_args()
    try:
        print(f"{args.page}: {fill_file(args.page, tables(args.records))}")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()

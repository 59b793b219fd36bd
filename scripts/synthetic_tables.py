"""Fills the tables of docs/synthetic.md from the studies' records.

    python scripts/synthetic_tables.py
    python scripts/synthetic_tables.py --records docs/records/synthetic --page docs/synthetic.md

A table stands between <!-- table: NAME --> and <!-- end -->; the rest of the page stays as it is.
scripts/synthetic.py makes the records: copy the ones to show from outputs/synthetic/records.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lkf_plugin.errors import UserError
from lkf_plugin.report.page_blocks import fill_file
from lkf_plugin.report.synthetic_runs import read_records
from lkf_plugin.report.synthetic_tables import tables


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--records", type=Path, default=Path("docs/records/synthetic"))
    parser.add_argument("--page", type=Path, default=Path("docs/synthetic.md"))
    args = parser.parse_args()
    try:
        records = read_records(args.records)
        done = fill_file(args.page, tables(records))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    print(f"{args.page}: {done}, {sum(map(len, records.values()))} records")


if __name__ == "__main__":
    main()

"""The command line of the scripts that fill a page from kept records."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from experiments.pages.blocks import fill_file
from lkf_plugin.errors import UserError


def page_command(
    description: str | None, records: Path, page: Path, blocks: Callable[[Path], Mapping[str, str]]
) -> None:
    """Reads ``--records`` and ``--page``, fills the page and says whether it changed.

    Ends with 2 and one sentence where the records or the page do not fit.

    Args:
        description: the script's docstring.
        records: default folder of the records.
        page: default page.
        blocks: folder of the records -> what is to stand in each block, by name.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--records", type=Path, default=records)
    parser.add_argument("--page", type=Path, default=page)
    args = parser.parse_args()
    try:
        shown = blocks(args.records)
        print(f"{args.page}: {fill_file(args.page, shown)}, {len(shown)} tables")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)

"""``lkf report``: runs side by side, as tables and a figure or as one page for a browser."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from lkf_plugin.errors import UserError
from lkf_plugin.failures import print_lines
from lkf_plugin.report.html import write_html
from lkf_plugin.report.runs import has_runs
from lkf_plugin.report.side_by_side import write_side_by_side


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; a mistake is told in one sentence with status 2."""
    parser = argparse.ArgumentParser(prog="lkf report", description="Runs side by side.")
    parser.add_argument("folder", type=Path, help="of runs, subfolders included")
    parser.add_argument("--out", type=Path, help="where to (default: FOLDER/report)")
    parser.add_argument("--html", type=Path, help="one self-contained page instead")
    parser.add_argument("--no-figures", action="store_true")
    args = parser.parse_args(arguments)
    return print_lines(lambda: _write(args))


def _write(args: argparse.Namespace) -> list[Path]:
    if not args.folder.is_dir():
        raise UserError(f"{args.folder} is no folder: name one of runs.")
    if not has_runs(args.folder):
        raise UserError(
            f"There is no run folder under {args.folder}: train one first. (Tables of records are "
            "made by scripts/report.py in the repository.)"
        )
    if args.html:
        return [write_html(args.folder, args.html)]
    return write_side_by_side(args.folder, args.out or args.folder / "report", not args.no_figures)

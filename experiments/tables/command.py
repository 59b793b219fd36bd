"""The command line of ``scripts/report.py``: from a folder of records or of runs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from experiments.tables.figures import draw_all
from experiments.tables.layouts import LAYOUTS
from experiments.tables.lookup import Lookup
from experiments.tables.render import beside, caption, latex, long_csv, markdown
from lkf_plugin.errors import UserError
from lkf_plugin.failures import print_lines
from lkf_plugin.records.comparable import check_comparable
from lkf_plugin.records.record import Record
from lkf_plugin.records.store import read_records
from lkf_plugin.report.html import write_html
from lkf_plugin.report.runs import has_runs
from lkf_plugin.report.side_by_side import write_side_by_side


def write_report(
    folder: Path, out: Path, tables: Sequence[str] | None = None, figures: bool = True
) -> list[Path]:
    """Writes ``<corpus>/tables.md``, ``<table>.tex``, ``<table>.csv`` and figures.

    Args:
        folder: of the records, subfolders included.
        out: where to; a folder a corpus is made in it.
        tables: names of ``LAYOUTS``; None is all that have a measured figure.
        figures: whether to draw.

    Returns:
        The files that were written.

    Raises:
        UserError: no records, or some that must not stand side by side.
    """
    records = read_records(folder)
    if not records:
        raise UserError(f"there is no record under {folder}: make some with scripts/evaluate.py.")
    written: list[Path] = []
    by_corpus: dict[str, list[Record]] = {}
    for record in records:
        by_corpus.setdefault(record.corpus, []).append(record)
    for corpus, own in sorted(by_corpus.items()):
        written += _write_corpus(own, out / corpus, tables, figures)
    return written


def _write_corpus(
    records: list[Record], out: Path, names: Sequence[str] | None, figures: bool
) -> list[Path]:
    check_comparable(records, f"tables of {records[0].corpus}")
    lookup = Lookup(records)
    out.mkdir(parents=True, exist_ok=True)
    described = caption(records, lookup.metric, lookup.higher_is_better)
    parts: list[str] = [f"# {records[0].corpus}", "", described, ""]
    written: list[Path] = []
    for name in names or LAYOUTS:
        table = LAYOUTS[name](lookup)
        if table.empty:
            continue
        parts.append(markdown(table, ""))
        for suffix, text in (("tex", latex(table, described)), ("csv", long_csv(table))):
            written.append(_write(out / f"{name}.{suffix}", text))
    parts.append(beside(records, lookup.metric))
    if figures:
        written += draw_all(lookup, out)
    return [_write(out / "tables.md", "\n".join(parts)), *written]


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; a mistake is told in one sentence with status 2."""
    parser = argparse.ArgumentParser(
        description="Tables and figures from a folder of records, or runs side by side."
    )
    parser.add_argument("folder", type=Path, help="of records or of runs, subfolders included")
    parser.add_argument(
        "--out", type=Path, help="where to (default: FOLDER/../report, of runs FOLDER/report)"
    )
    parser.add_argument("--table", action="append", choices=list(LAYOUTS), help="repeat for more")
    parser.add_argument("--html", type=Path, help="of runs: one self-contained page instead")
    parser.add_argument("--no-figures", action="store_true")
    args = parser.parse_args(arguments)
    return print_lines(lambda: _write_either(args))


def _write_either(args: argparse.Namespace) -> list[Path]:
    """Tables from records, or runs side by side if the folder has run folders."""
    if not args.folder.is_dir():
        raise UserError(f"{args.folder} is no folder: name one of records or of runs.")
    if has_runs(args.folder):
        if args.table:
            raise UserError("--table is for a folder of records: leave it out for runs.")
        if args.html:
            return [write_html(args.folder, args.html)]
        return write_side_by_side(
            args.folder, args.out or args.folder / "report", not args.no_figures
        )
    if args.html:
        raise UserError("--html is for a folder of runs: leave it out for records.")
    out = args.out or args.folder.resolve().parent / "report"
    return write_report(args.folder, out, args.table, not args.no_figures)

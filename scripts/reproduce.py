"""Makes the paper's decoding tables on models of a chosen size.

    python scripts/reproduce.py all --scale tiny            # AgreeText and SOTU, two CPU cores
    python scripts/reproduce.py bestofn --scale small       # State of the Union text
    python scripts/reproduce.py main M8.best_of_m --scale paper --print
    python scripts/reproduce.py main sdtt --scale tiny --corpus agreetext
    python scripts/reproduce.py all --scale paper           # LM1B and WikiText-103, needs GPUs

It trains the models that are missing and measures the cells that have no record; killed, the same
command goes on. Tables and figures are written to OUT/report at the end.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

from experiments.paper.plan import TABLES
from experiments.paper.reproduce import job_name, reproduce, work_of
from experiments.paper.scales import SCALES, Corpus
from experiments.tables.command import write_report
from lkf_plugin.config import cpu_count, default_accelerator
from lkf_plugin.errors import UserError


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("table", choices=("all", *TABLES))
    parser.add_argument("row", nargs="?", help="only cells whose name holds this text")
    parser.add_argument("--scale", choices=tuple(SCALES), default="tiny")
    parser.add_argument("--corpus", help="only this one of the scale's corpora")
    parser.add_argument("--seeds", type=int, nargs="+", help="of the scale's trainings, only these")
    parser.add_argument("--out", type=Path, help="default: outputs/tables-SCALE")
    parser.add_argument("--workers", type=int, help="processes (default: a core each on a CPU)")
    parser.add_argument("--print", action="store_true", help="show what would be run, run nothing")
    args = parser.parse_args()
    tables = TABLES if args.table == "all" else (args.table,)
    corpora = [one for one in SCALES[args.scale] if args.corpus in (None, one.name)]
    if args.seeds:
        corpora = [replace(one, seeds=tuple(args.seeds)) for one in corpora]
    out = args.out or Path("outputs") / f"tables-{args.scale}"
    workers = args.workers or (1 if default_accelerator() != "cpu" else min(cpu_count(), 8))
    try:
        if not corpora:
            names = ", ".join(one.name for one in SCALES[args.scale])
            raise UserError(f"--corpus {args.corpus} is not in --scale {args.scale}: take {names}.")
        if args.print:
            show(corpora, tables, out, args.row)
            return 0
        began = time.monotonic()
        records = reproduce(corpora, tables, out, args.row, workers)
        shown = (*tables, "nats", "cost", "coupling") if "main" in tables else tables
        for path in write_report(records, out / "report", None if args.table == "all" else shown):
            print(path)
        print(f"took {time.monotonic() - began:.0f} s")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def show(corpora: list[Corpus], tables: tuple[str, ...], out: Path, row: str | None) -> None:
    """Commands of the trainings, and the cells that follow."""
    for corpus in corpora:
        models, jobs = work_of(corpus, tables, row)
        for model, seed in models:
            print("python", *corpus.run(out, model, seed).command)
        for job in jobs:
            print(
                f"# {corpus.name}.{job_name(job)}: {corpus.samples} samples, judge {corpus.judge}"
            )


if __name__ == "__main__":
    sys.exit(main())

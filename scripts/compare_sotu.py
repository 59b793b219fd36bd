"""AR, MDLM, SEDD, DUO and LKF on State of the Union addresses, judged offline.

Trains every row that is not trained yet (lkf-M8 starts from lkf-M1), evaluates and samples what is
missing, and writes table.md, records and compare.png to outputs/compare_sotu. It may be stopped
at any time; the same command goes on. `make judge` installs the judge.

    python scripts/compare_sotu.py
    python scripts/compare_sotu.py --rows mdlm lkf-M1 --grid 1 4 16
    python scripts/compare_sotu.py --steps 4 --samples 4 --grid 1 2 --out outputs/trial
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from experiments.compare.sotu import GRID, ROWS, compare
from lkf_plugin.errors import UserError
from lkf_plugin.judge.judge import Judge


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("outputs/compare_sotu"))
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--samples", type=int, default=64, help="samples per cell")
    parser.add_argument("--passes", type=int, default=4, help="draws of noise for the likelihood")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--grid", type=int, nargs="+", default=list(GRID), help="steps J")
    parser.add_argument("--steps", type=int, help="training steps (default: the recipes')")
    parser.add_argument("--judge", default="smollm2", help="or a model's name or folder")
    options = parser.parse_args()
    try:
        # A judge that is missing is told before hours of training.
        table = compare(
            options.out,
            options.rows,
            options.samples,
            options.passes,
            options.seed,
            Judge(options.judge, device="cpu"),
            options.grid,
            options.steps,
        )
    except UserError as error:
        sys.exit(f"error: {error}")
    print(f"{table}\ntable, cells, figure and runs: {options.out.resolve()}")


if __name__ == "__main__":
    main()

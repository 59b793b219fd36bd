"""AR, MDLM, SEDD, DUO and LKF on AgreeText: likelihood, and valid texts against network calls.

Trains every row that is not trained yet, evaluates and samples what is missing, and writes
table.md, records and compare.png to outputs/compare_agreetext. It may be stopped at any time;
the same command goes on.

    python scripts/compare_agreetext.py
    python scripts/compare_agreetext.py --rows sedd duo --samples 64
    python scripts/compare_agreetext.py --seed 2 --out outputs/compare_agreetext_seed2
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from experiments.compare.agreetext import ROWS, compare
from lkf_plugin.errors import UserError


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("outputs/compare_agreetext"))
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--samples", type=int, default=256, help="samples per cell")
    parser.add_argument("--passes", type=int, default=4, help="draws of noise for the likelihood")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--perturb", action="store_true", help="start from weights moved by one last bit"
    )
    options = parser.parse_args()
    how = (options.samples, options.passes, options.seed, options.perturb)
    try:
        table = compare(options.out, options.rows, *how)
    except UserError as error:
        sys.exit(f"error: {error}")
    print(f"{table}\ntable, cells, figure and runs: {options.out.resolve()}")


if __name__ == "__main__":
    main()

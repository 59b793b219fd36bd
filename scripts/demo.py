"""The demo: agreement broken by independent draws, kept by latents.

Trains M = 1 (MDLM), M = 8 and a tree of latents on AgreeText, samples them in J = 1 to 32 steps,
and writes table, samples with their mistakes marked, picture and checkpoints to outputs/demo.

    make demo
    python scripts/demo.py --steps 400 --samples 64     # quicker and rougher
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from experiments.demo.run import run_demo
from lkf_plugin.errors import UserError


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", default="outputs/demo", help="run folder")
    parser.add_argument(
        "--steps", type=int, default=None, help="training steps (default: the recipe's)"
    )
    parser.add_argument("--samples", type=int, default=128, help="samples per cell")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--perturb", action="store_true", help="start from weights moved by one last bit"
    )
    args = parser.parse_args()
    try:
        run_demo(Path(args.out), args.steps, args.samples, args.seed, args.perturb)
    except UserError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()

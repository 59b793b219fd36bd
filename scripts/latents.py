"""Structures of latents side by side: likelihood of few-step samplers, and their samples.

agreetext trains M = 1, M = 8, a tree, AR and DUO with three seeds (about half an hour of one
core); characters goes on from one factorised model for equal CPU seconds, as it is, with M = 8, a
tree and a chain (an hour). What is there is not made again, so that the command may be stopped and
repeated.

    python scripts/latents.py agreetext
    python scripts/latents.py characters --arms M1-on chain
    python scripts/latents.py agreetext --seeds 1 --steps 20 --samples 8 --out outputs/trial
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from experiments.latents.arms import STUDIES
from experiments.latents.figure import draw
from experiments.latents.study import RECORDS, run_study
from experiments.latents.tables import read_exact, read_study, render
from experiments.latents.targets import render_targets
from lkf_plugin.errors import UserError
from lkf_plugin.files import write_atomically


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("study", choices=list(STUDIES))
    parser.add_argument("--out", type=Path, default=Path("outputs/latents"))
    parser.add_argument("--arms", nargs="+", help="some of the study's runs (default: all)")
    parser.add_argument("--seeds", type=int, nargs="+", help="of training (default: the study's)")
    parser.add_argument("--steps", type=int, help="training steps (default: the recipes')")
    parser.add_argument("--samples", type=int, help="of a cell (default: the study's)")
    parser.add_argument("--workers", type=int, default=1, help="trainings side by side")
    args = parser.parse_args()
    try:
        out, study = args.out / args.study, STUDIES[args.study]
        if unknown := [arm for arm in args.arms or () if arm not in study.rows]:
            known = ", ".join(study.rows)
            raise UserError(f"--arms {unknown[0]} is no run of {args.study}: take {known}.")
        run_study(args.study, out, args.arms, args.seeds, args.steps, args.samples, args.workers)
        table = render(args.study, out / RECORDS)
        write_atomically(out / "table.md", f"{table}\n")
        runs, exact = read_study(args.study, out / RECORDS), read_exact(out / RECORDS)
        draw(out / "few_step.png", study, runs, args.study, exact)
    except UserError as error:
        sys.exit(f"error: {error}")
    if args.study == "agreetext" and args.arms is None and args.steps is None:
        print(f"What the tree is asked:\n{render_targets(read_study(args.study, out / RECORDS))}\n")
    print(f"{table}\n\ntables, records, figure and runs: {out.resolve()}")


if __name__ == "__main__":
    main()

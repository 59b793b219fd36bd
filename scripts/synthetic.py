"""The synthetic studies: corpora whose optimum is known, and how near a trained model comes.

    python scripts/synthetic.py hidden                  # one study, three seeds
    python scripts/synthetic.py all --short             # all of them, one seed: minutes
    python scripts/synthetic.py hidden --paper          # the paper's 30,000 steps, three seeds
    python scripts/synthetic.py ties --steps 1000 --seeds 5
    python scripts/synthetic.py hidden --perturb        # and seed 0 once more, moved by a last bit

Studies: theory, hidden, parity, probe, modes, support, ablations, ties, agreetext.
Runs resume where they were cut off, and what is recorded is not measured again. Runs, records and
figures go to outputs/synthetic.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch

from experiments.studies.catalog import PAPER_STEPS, STUDIES, Budget, run_study
from experiments.studies.figures import draw
from experiments.studies.targets import report
from lkf_plugin.errors import UserError


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("study", choices=[*STUDIES, "all"])
    parser.add_argument("--steps", type=int, default=None, help="of every run (default: its own)")
    parser.add_argument("--seeds", type=int, default=None, help="default 3, with --short 1")
    parser.add_argument("--paper", action="store_true", help=f"{PAPER_STEPS} steps, three seeds")
    parser.add_argument("--short", action="store_true", help="fewer cells, long runs cut")
    parser.add_argument(
        "--perturb", action="store_true", help="seed 0 once more, its start moved by one last bit"
    )
    parser.add_argument("--out", type=Path, default=Path("outputs/synthetic"))
    parser.add_argument("--threads", type=int, default=1, help="of torch; the tensors are small")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    try:
        budget = read_budget(args)
        for study in STUDIES if args.study == "all" else [args.study]:
            one(study, budget, args.out)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def read_budget(args: argparse.Namespace) -> Budget:
    """What the flags ask for.

    Raises:
        UserError: flags that contradict each other.
    """
    if args.paper and (args.short or args.steps):
        raise UserError("--paper fixes the steps: leave --short and --steps out.")
    if args.seeds is not None and args.seeds < 1:
        raise UserError("--seeds must be at least 1.")
    if args.steps is not None and args.steps < 1:
        raise UserError("--steps must be at least 1.")
    steps = PAPER_STEPS if args.paper else args.steps
    return Budget(args.seeds or (1 if args.short else 3), steps, args.short, args.perturb)


def one(study: str, budget: Budget, out: Path) -> None:
    """Runs a study, draws it, and prints its targets."""
    began = time.monotonic()
    records = run_study(study, budget, out)
    figure = out / "figures" / f"synthetic_{study}.png"
    drawn = draw(study, records, figure)
    print(f"{study}: {len(records)} records, {time.monotonic() - began:.0f} s", flush=True)
    if drawn:
        print(f"  figure {figure}")
    for line in report(study, records):
        print(line)


if __name__ == "__main__":
    main()

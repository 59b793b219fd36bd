"""This version against another one: training steps and single chains of both, alternating.

    git worktree add --detach ../before COMMIT
    python benchmarks/against.py ../before

Each case of each version has a process of its own, and all of them run in turn, so that a busy
machine disturbs both alike; which version goes first changes from round to round. The table goes to
outputs/bench as other timings do.

Options: --rounds N, --only TEXT (cases whose name begins so).
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from timing import Times, ratio
from worker import SERVE, Worker, serve

CHAIN = "single chain"
CASES = (
    "MDLM", "M=1", "M=8 dense, chunked", "M=8 drawn S=2, flat",
    *(f"{CHAIN}, M={M}, J={J}" for M in (1, 8) for J in (8, 32)),
)  # fmt: skip


def repetition(case: str) -> Callable[[], Any]:
    """One step or one batch of samples, by the modules of the version that is imported."""
    from harness import Shape

    if case.startswith(CHAIN):
        from bench_sampling import module_for, sampler

        _, M, J = (part.split("=")[-1] for part in case.split(","))
        return sampler(module_for(Shape(batch=2), int(M), "commit"), int(J))
    from variants import VARIANTS, step

    return step(VARIANTS[case].module(Shape()), Shape())


def be_worker(argument: str) -> None:
    """The process of one case; argument: folder of the version, and the case."""
    folder, case = argument.split(os.pathsep, 1)
    # its own benchmarks, networks and defaults; ``timing`` and ``worker`` are these ones
    sys.path[:0] = [folder, str(Path(folder) / "benchmarks")]
    serve(repetition(case))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", nargs="?", type=Path, help="a checkout of the other version")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--only", default="")
    parser.add_argument(SERVE, dest="serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        be_worker(options.serve)
        return 0
    if options.other is None or not (options.other / "benchmarks/variants.py").is_file():
        parser.error(f"{options.other} is no checkout of this repository: name one.")
    from sheet import Sheet

    here = Path(__file__).resolve().parents[1]
    folders = {"this": here, "other": options.other.resolve()}
    cases = [case for case in CASES if case.startswith(options.only)]
    running: dict[str, Worker] = {}
    try:
        for case in cases:
            for version, folder in folders.items():
                running[f"{case} {version}"] = Worker(__file__, f"{folder}{os.pathsep}{case}")
        times = {name: Times([], []) for name in running}
        for number in range(options.rounds + 1):
            # who comes first in a round is at a disadvantage of some percent: in turn
            order = [*folders] if number % 2 else [*reversed(folders)]
            for name in (f"{case} {version}" for case in cases for version in order):
                spent = running[name](number)
                if number:  # the first round warms up
                    times[name].cpu.append(spent.cpu)
                    times[name].wall.append(spent.wall)
    finally:
        for worker in running.values():
            worker.close()
    sheet = Sheet("against", "Two versions", other=options.other.name, rounds=options.rounds)
    rows = []
    for case in cases:
        this, other = (times[f"{case} {version}"].cpu for version in folders)
        rows.append([
            case, f"{statistics.median(this):.3f}", f"{statistics.median(other):.3f}",
            ratio(this, other), f"{min(this) / min(other):.2f}",
        ])
    sheet.table(
        "against",
        f"This version against {options.other.name}",
        ["case", "CPU-s", "CPU-s, other", "this / other", "fastest / fastest"],
        rows,
        "Medians over the rounds with their extremes, of CPU seconds.",
    )
    sheet.seconds("against", times)
    return 0


if __name__ == "__main__":
    sys.exit(main())

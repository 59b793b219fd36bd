"""Where the time of a training step and of a sampling chain goes, by operator.

Options: --least SHARE (percent below which an operator counts as another).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import torch
from bench_sampling import MAIN_STEPS, module_for, sampler
from harness import Shape
from sheet import Sheet
from torch.profiler import ProfilerActivity, profile
from variants import MDLM, VARIANTS, step

DRAWN, EXACT = "M=8 drawn S=2, flat", "M=8 dense, chunked"


def shares(run: Callable[[], Any]) -> tuple[float, dict[str, float]]:
    """Seconds of one repetition after one that is not counted, and each operator's percentage."""
    torch.manual_seed(0)
    run()
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        run()
    spent = {one.key: one.self_cpu_time_total for one in recorded.key_averages()}
    total = sum(spent.values())
    return total / 1e6, {name: 100 * time / total for name, time in spent.items()}


def main() -> int:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--least", type=float, default=1.5)
    options = parser.parse_args()
    shape = Shape()
    cases: dict[str, Callable[[], Any]] = {
        name: step(VARIANTS[name].module(shape), shape) for name in (MDLM, "M=1", EXACT, DRAWN)
    }
    pair = shape._replace(batch=2)
    for name, M, decode in (("MDLM", 0, ""), ("M=8", 8, "commit")):
        cases[f"{name}, chain of J={MAIN_STEPS}"] = sampler(module_for(pair, M, decode), MAIN_STEPS)
    sheet = Sheet("profile", "Where the time goes", shape=shape, batch_of_chains=pair.batch)
    profiles = {name: shares(run) for name, run in cases.items()}
    weight: dict[str, float] = {}
    for _, operators in profiles.values():
        for operator, share in operators.items():
            weight[operator] = max(weight.get(operator, 0.0), share)
    shown = sorted((o for o, w in weight.items() if w >= options.least), key=lambda o: -weight[o])
    rows = [
        [operator, *(f"{operators.get(operator, 0.0):.1f}" for _, operators in profiles.values())]
        for operator in shown
    ]
    rest = [100 - sum(operators.get(o, 0.0) for o in shown) for _, operators in profiles.values()]
    rows.append(["others", *(f"{share:.1f}" for share in rest)])
    rows.append(["seconds, profiled", *(f"{seconds:.2f}" for seconds, _ in profiles.values())])
    sheet.table(
        "profile",
        "Share of the operators' own time, percent",
        ["operator", *profiles],
        rows,
        f"Operators with at least {options.least} % somewhere, the largest first. Steps are a loss "
        "and its gradient; chains are single, of whole texts.",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

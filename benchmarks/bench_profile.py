"""Where the time of a training step and of a sampling chain goes, and what lies above the limit.

Options: --least SHARE (percent below which an operator counts as another).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from bench_sampling import (
    BLOCK_STEPS,
    MAIN_STEPS,
    blocks_flops,
    chain_flops,
    mdlm_flops,
    module_for,
    passes_counted,
    sampler,
)
from harness import Shape, gemm_rate, spelled
from sheet import Sheet
from torch.profiler import ProfilerActivity, profile
from variants import MDLM, VARIANTS, counted, pairs_kept, step

DRAWN, EXACT, LATE = "M=8 drawn S=2, flat", "M=8 dense, chunked", "chain of 8, late"
PRODUCTS, ATTENTION, OTHERS = "matrix products", "attention", "copies, sums, element by element"
KINDS = {  # parts of an operator's name -> what it does; the first that fits
    PRODUCTS: ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"),
    ATTENTION: ("scaled_dot_product",),
    "activations and norms": ("gelu", "silu", "norm"),
    "exponentials and draws": ("exp", "log", "cumsum", "uniform", "bernoulli", "bitwise", "rand"),
}


class Case(NamedTuple):
    """A column: what is timed, and operations that it cannot leave out."""

    run: Callable[[], Any]
    work: Callable[[], float]


def training(name: str, shape: Shape) -> Case:
    """A step of a variant."""
    variant = VARIANTS[name]
    run = step(variant.module(shape), shape)
    return Case(run, lambda: counted(variant, shape, pairs_kept(variant, run)))


def chain(name: str, shape: Shape, steps: int) -> Case:
    """Single chains: of MDLM, of M = 8, or of a variant with latents per block."""
    if name == MDLM:
        work = shape.batch * mdlm_flops(shape, steps)
        return Case(sampler(module_for(shape, 0, ""), steps), lambda: work)
    if name not in VARIANTS:
        module = module_for(shape, 8, "commit")
        run = sampler(module, steps)
        return Case(
            run, lambda: shape.batch * chain_flops(shape, module.last_decoded.network_calls)
        )
    variant = VARIANTS[name]
    module = module_for(shape, variant.K or 1, "commit", *variant.overrides)
    passed, run = passes_counted(module), sampler(module, steps)

    def work_of() -> float:
        passed.clear()
        run()
        calls, passes = module.last_decoded.network_calls, sum(passed) / shape.batch
        return shape.batch * blocks_flops(shape, variant.late, calls, passes)

    return Case(run, work_of)


def profiled(run: Callable[[], Any]) -> dict[str, float]:
    """Seconds of each operator's own time in one repetition, after one that is not counted."""
    torch.manual_seed(0)
    run()
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        run()
    return {one.key: one.self_cpu_time_total / 1e6 for one in recorded.key_averages()}


def by_kind(spent: Mapping[str, float]) -> dict[str, float]:
    """Seconds of each kind of operator."""
    kinds = dict.fromkeys((*KINDS, OTHERS), 0.0)
    for operator, seconds in spent.items():
        fitting = (kind for kind, parts in KINDS.items() if any(part in operator for part in parts))
        kinds[next(fitting, OTHERS)] += seconds
    return kinds


def main() -> int:
    """Both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--least", type=float, default=1.5)
    options = parser.parse_args()
    shape = Shape()
    pair = shape._replace(batch=2)
    cases = {name: training(name, shape) for name in (MDLM, "M=1", EXACT, DRAWN)}
    for name, steps in ((MDLM, MAIN_STEPS), ("M=8", MAIN_STEPS), ("M=8", BLOCK_STEPS),
                        (LATE, BLOCK_STEPS)):  # fmt: skip
        cases[f"{name}, chain of J={steps}"] = chain(name, pair, steps)
    rates = gemm_rate(shape)
    sheet = Sheet("profile", "Where the time goes", shape=shape, batch_of_chains=pair.batch,
                  **{"matrix products, GFLOP/s": spelled(rates)})  # fmt: skip
    profiles = {name: profiled(case.run) for name, case in cases.items()}
    _shares(sheet, profiles, options.least)
    rate = max(rates.values()) * 1e9 / torch.get_num_threads()
    limits = {name: case.work() / rate for name, case in cases.items()}
    _above(sheet, {name: by_kind(spent) for name, spent in profiles.items()}, limits)
    return 0


def _shares(sheet: Sheet, profiles: Mapping[str, Mapping[str, float]], least: float) -> None:
    totals = {name: sum(spent.values()) for name, spent in profiles.items()}
    shares = {
        name: {operator: 100 * seconds / totals[name] for operator, seconds in spent.items()}
        for name, spent in profiles.items()
    }
    weight: dict[str, float] = {}
    for operators in shares.values():
        for operator, share in operators.items():
            weight[operator] = max(weight.get(operator, 0.0), share)
    shown = sorted((o for o, w in weight.items() if w >= least), key=lambda o: -weight[o])
    rows = [
        [operator, *(f"{operators.get(operator, 0.0):.1f}" for operators in shares.values())]
        for operator in shown
    ]
    rest = [100 - sum(operators.get(o, 0.0) for o in shown) for operators in shares.values()]
    rows.append(["others", *(f"{share:.1f}" for share in rest)])
    rows.append(["seconds, profiled", *(f"{seconds:.2f}" for seconds in totals.values())])
    sheet.table(
        "profile",
        "Share of the operators' own time, percent",
        ["operator", *profiles],
        rows,
        f"Operators with at least {least} % somewhere, the largest first. Steps are a loss "
        "and its gradient; chains are single, of whole texts.",
    )


def _above(
    sheet: Sheet, kinds: Mapping[str, Mapping[str, float]], limits: Mapping[str, float]
) -> None:
    rows = [
        [kind, *(f"{spent[kind] / limits[name]:.2f}" for name, spent in kinds.items())]
        for kind in (*KINDS, OTHERS)
    ]
    sums = (sum(spent.values()) / limits[name] for name, spent in kinds.items())
    rows.append(["all", *(f"{total:.2f}" for total in sums)])
    sheet.table(
        "above",
        "Time over the counted limit, by what it is spent on",
        ["operators", *kinds],
        rows,
        "The limit is the count of operations that cannot be left out, attention among them, over "
        "the best measured product. What lies above 1 in the first two rows is products at less "
        "than that rate; less than 1 is work that the count has and the run leaves out, such as "
        "most of a chain's last block.",
    )


if __name__ == "__main__":
    sys.exit(main())

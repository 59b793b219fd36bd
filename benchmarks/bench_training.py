"""A training step (loss and gradient, no optimizer) of MDLM and of every LKF variant.

Each variant has a process of its own. One table from one run: interleaved rounds, ratios with
spread, the peak memory of a first step above that of the model and the batch, and the distance to
the counted arithmetic.

MDLM's own code is a row of its own where a checkout is (external/mdlm or $MDLM_HOME).

Options: --rounds N, --quick (no growth tables), --only TEXT ... (variants whose name holds one),
--name NAME of the record (training).
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, NamedTuple

import torch
from harness import Shape, gemm_rate, has_upstream, spelled
from sheet import TARGET_CAPTION, TARGET_COLUMNS, Sheet, target
from timing import Times, interleaved, median_ratio, ratio
from variants import (
    MASK_RATE,
    MDLM,
    VARIANTS,
    Kept,
    Variant,
    counted,
    gamma_entropy,
    lkf,
    pairs_kept,
    step,
)
from worker import SERVE, serve, workers

FLAT, EXACT, TWO_PHASE = "M=8 drawn S=2, flat", "M=8 dense, chunked", "M=8 two-phase 0, flat"
NAIVE, ORDER = "M=8 naive", "M=1, MDLM's order"
BLOCKS = {  # latents per block -> at most so many steps of one per sequence
    "tree 4 x 2 over 16": 1.3, "tree 4 x 2 over 16, late": 1.3,
    "chain of 8": 1.5, "chain of 8, late": 1.5,
}
TIME, PEAK = "time", "peak memory"
DENSE, SKIPPING, GROWN = "dense, flat", "dense, peaked", "two-phase 1e-3, peaked"


class Measured(NamedTuple):
    """What the processes of some variants measured.

    Attributes:
        times: seconds of the counted rounds.
        facts: ``peak_mb``, ``gamma_entropy`` (nats, as text) and ``kept`` (pairs per sequence).
    """

    times: dict[str, Times]
    facts: dict[str, dict[str, Any]]


def measure(cases: dict[str, tuple[Variant, Shape]], rounds: int) -> Measured:
    """Each variant in a process of its own, one after the other in every round."""
    arguments = {
        name: json.dumps({"variant": asdict(variant), "shape": shape._asdict()})
        for name, (variant, shape) in cases.items()
    }
    with workers(__file__, arguments) as running:
        times = interleaved(running, rounds)
        return Measured(times, {name: worker.facts() for name, worker in running.items()})


def be_worker(argument: str) -> None:
    """One variant's process."""
    case = json.loads(argument)
    variant, shape = Variant(**case["variant"]), Shape(**case["shape"])
    module = variant.module(shape)
    run = step(module, shape)
    serve(
        run,
        lambda: {"gamma_entropy": gamma_entropy(module), "kept": pairs_kept(variant, run)},
    )


def main_table(
    sheet: Sheet, variants: dict[str, Variant], shape: Shape, rate: float, rounds: int
) -> Measured:
    """All variants side by side."""
    measured = measure({name: (variant, shape) for name, variant in variants.items()}, rounds)
    times, facts = measured
    rows = []
    for name, variant in variants.items():
        cpu = times[name].cpu
        work = counted(variant, shape, Kept(*facts[name]["kept"])) / 1e9
        middle = statistics.median(cpu)
        rows.append([
            name,
            facts[name]["gamma_entropy"],
            f"{middle:.2f}",
            f"{statistics.median(times[name].wall):.2f}",
            ratio(cpu, times[MDLM].cpu),
            ratio(cpu, times["M=1"].cpu),
            f"{facts[name]['peak_mb']:.0f}",
            f"{facts[name]['peak_mb'] / facts[MDLM]['peak_mb']:.2f}",
            f"{work:.0f}",
            f"{middle * rate / torch.get_num_threads() / work:.1f}",
        ])
    sheet.table(
        "step",
        "A training step, all variants in one run",
        ["variant", "H(gamma), nats", "CPU-s", "wall s", "time / MDLM", "time / M=1", "peak MB",
         "peak / MDLM", "GFLOP", "time / limit"],
        rows,
        "Loss and gradient, no optimizer. Ratios are medians over the rounds with their extremes, "
        "of CPU seconds. GFLOP counts what no implementation of the variant can leave out, with "
        "the pairs that got a backward pass in one measured step; the limit is that count over the "
        "best measured product.",
    )
    sheet.seconds("step", times)
    return measured


def growth_with_components(sheet: Sheet, rounds: int) -> list[list[str]]:
    """How the cost grows with M; returns the rows for the targets."""
    base, ms = Shape(), (1, 2, 4, 8, 16)
    kinds: dict[str, Callable[[int], Variant]] = {
        DENSE: lkf,
        SKIPPING: lambda M: lkf(M, peaked=True),
        GROWN: lambda M: lkf(M, "two_phase", peaked=True, threshold=1e-3),
        "drawn S=2, flat": lambda M: lkf(M, "drawn"),
    }
    cases = {
        f"{kind} {M}": (make(M), base)
        for kind, make in kinds.items() for M in ms if M <= 8 or "dense" not in kind
    }
    times, facts = measure(cases, rounds)
    sheet.seconds("growth with M", times)
    reference = times[f"{DENSE} 1"].cpu
    grown = {name: median_ratio(seconds.cpu, reference) for name, seconds in times.items()}
    rows = [
        [kind, *(f"{grown[f'{kind} {M}']:.2f}" if f"{kind} {M}" in grown else "" for M in ms)]
        for kind in kinds
    ]
    low, high = 2, 8
    added = {k: (grown[f"{k} {high}"] - grown[f"{k} {low}"]) / (high - low) for k in kinds}
    entropy = facts[f"{GROWN} {high}"]["gamma_entropy"]
    each = ", ".join(f"{kind} {cost:.2f}" for kind, cost in added.items())
    sheet.table(
        "growth with M",
        "Growth with M: time over that of M = 1",
        ["", *(f"M={M}" for M in ms)],
        rows,
        f"A component more, between M = {low} and {high}, costs in M = 1 steps: {each}. The "
        f"entropy of gamma at M = {high} in the two-phase row is {entropy} nats. Where gamma is "
        "peaked, the dense step too skips the rows of weight zero in the head's backward pass.",
    )
    label = f"a component more, {GROWN} (H(gamma) = {entropy} nats), against one of"
    return [
        target(f"{label} {dense}, time", 0.45, added[GROWN] / added[dense])
        for dense in (DENSE, SKIPPING)
    ]


def growth_with_sizes(sheet: Sheet, rounds: int) -> None:
    """How the cost grows with L, V and B."""
    base = Shape()
    three = {name: VARIANTS[name] for name in (MDLM, "M=1", FLAT)}
    shapes = {
        "L=64": base._replace(length=64), "L=128": base, "L=256": base._replace(length=256),
        "V=2048": base._replace(vocab=2048), "V=8192": base._replace(vocab=8192),
        "B=2": base._replace(batch=2), "B=8": base._replace(batch=8),
    }
    cases = {
        f"{where} {name}": (variant, shape)
        for where, shape in shapes.items() for name, variant in three.items()
    }
    times, _ = measure(cases, rounds)
    sheet.seconds("growth with sizes", times)
    rows = []
    for where in shapes:
        mdlm = times[f"{where} {MDLM}"].cpu
        rows.append([
            where,
            f"{statistics.median(mdlm):.2f}",
            *(ratio(times[f"{where} {name}"].cpu, mdlm) for name in ("M=1", FLAT)),
        ])
    sheet.table(
        "growth with sizes",
        "Growth with L, V and B: time over MDLM's own at the same sizes",
        ["", "MDLM, CPU-s", "M=1 / MDLM", f"{FLAT} / MDLM"],
        rows,
    )


TARGETS: list[tuple[str, float, str, str, str]] = [  # label, at most, of what, row, over row
    ("M=8 drawn S=2 / MDLM", 1.6, TIME, FLAT, MDLM),
    ("M=8 exact (dense, chunked) / MDLM", 3.0, TIME, EXACT, MDLM),
    ("M=8 drawn S=2 / MDLM", 1.0, PEAK, FLAT, MDLM),
    ("M=8 exact (dense, chunked) / MDLM", 1.0, PEAK, EXACT, MDLM),
    ("M=8 exact (two-phase 0) / MDLM", 1.0, PEAK, TWO_PHASE, MDLM),
    ("M=8 drawn S=2 / M=8 naive", 1 / 2, TIME, FLAT, NAIVE),
    ("M=8 exact (dense, chunked) / M=8 naive", 1 / 2, TIME, EXACT, NAIVE),
    ("M=8 drawn S=2 / M=8 naive", 1 / 6, PEAK, FLAT, NAIVE),
    ("M=8 exact (dense, chunked) / M=8 naive", 1 / 6, PEAK, EXACT, NAIVE),
    ("M=8 drawn S=2 / our M=1", 2.2, TIME, FLAT, "M=1"),
    ("M=8 drawn S=2 / our M=1 in MDLM's order", 2.2, TIME, FLAT, ORDER),
    ("M=1 / MDLM", 1 / 2, TIME, "M=1", MDLM),
    ("M=1 / MDLM", 1 / 2, PEAK, "M=1", MDLM),
    *((f"{name} / M=8 drawn S=2", at_most, TIME, name, FLAT) for name, at_most in BLOCKS.items()),
    *((f"{name} / MDLM", 1.0, PEAK, name, MDLM) for name in BLOCKS),
]


def targets(measured: Measured) -> list[list[str]]:
    """What was asked of a step, and what this run says of the rows that it has."""
    times, facts = measured
    rows = []
    for label, at_most, what, a, b in TARGETS:
        if a not in times or b not in times:
            continue
        if what == TIME:
            ratio_found = median_ratio(times[a].cpu, times[b].cpu)
        else:
            ratio_found = facts[a]["peak_mb"] / facts[b]["peak_mb"]
        rows.append(target(f"{label}, {what}", at_most, ratio_found))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--only", nargs="+", metavar="TEXT", help="names that contain any, beside MDLM and M=1"
    )
    parser.add_argument("--name", default="training", help="of the record, for a run of a few")
    parser.add_argument(SERVE, dest="serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        be_worker(options.serve)
        return 0
    variants = copy.copy(VARIANTS)
    if has_upstream():
        variants["MDLM, upstream"] = Variant(0, upstream=True)
    if options.only:
        variants = {
            n: v for n, v in variants.items()
            if n in (MDLM, "M=1") or any(text in n for text in options.only)
        }
    shape, fewer = Shape(), max(1, options.rounds - 2)
    rates, rounds = gemm_rate(shape), f"{options.rounds}, of growth {fewer}"
    facts = {"matrix products, GFLOP/s": spelled(rates), "rounds": rounds}
    sheet = Sheet(options.name, "Training step", shape=shape, mask_rate=MASK_RATE, **facts)
    measured = main_table(sheet, variants, shape, max(rates.values()), options.rounds)
    asked = targets(measured)
    if not options.quick:
        asked += growth_with_components(sheet, fewer)
        growth_with_sizes(sheet, fewer)
    if asked:
        sheet.table("targets", TARGET_CAPTION, TARGET_COLUMNS, asked)
    return 0


if __name__ == "__main__":
    sys.exit(main())

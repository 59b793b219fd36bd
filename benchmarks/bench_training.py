"""A training step (loss and gradient, no optimizer) of MDLM and of every LKF variant.

One table from one run: interleaved rounds, ratios with spread, peak memory of a fresh process
above one that only builds the model and the batch, and the distance to the counted arithmetic.

MDLM's own code is a row of its own where a checkout is (external/mdlm or $MDLM_HOME).

Options: --rounds N, --quick (no growth tables), --only TEXT (variants whose name holds it).
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
from collections.abc import Callable

import torch
from harness import (
    TARGET_CAPTION,
    TARGET_COLUMNS,
    Shape,
    Times,
    fresh_peak,
    gemm_rate,
    has_upstream,
    interleaved,
    median_ratio,
    note,
    peak_mb,
    ratio,
    spelled,
    target,
)
from sheet import Sheet
from variants import (
    MASK_RATE,
    MDLM,
    VARIANTS,
    Variant,
    counted,
    gamma_entropy,
    lkf,
    pairs_kept,
    step,
)

FLAT, EXACT, TWO_PHASE = "M=8 drawn S=2, flat", "M=8 dense, chunked", "M=8 two-phase 0, flat"
NAIVE, ORDER = "M=8 naive", "M=1, MDLM's order"
GROWN = "two-phase 1e-3, peaked"


def peaks_of(variants: dict[str, Variant]) -> dict[str, float]:
    """MB that a step needs above the model and the batch, each in a process of its own."""
    idle: dict[tuple[bool, bool], float] = {}
    found = {}
    for name, variant in variants.items():
        network = (variant.M > 0, variant.upstream)
        if network not in idle:
            idle[network] = fresh_peak(__file__, name, "--only-build")
        found[name] = fresh_peak(__file__, name) - idle[network]
        note(f"peak of {name}: {found[name]:.0f} MB")
    return found


def main_table(
    sheet: Sheet, variants: dict[str, Variant], peaks: dict[str, float], shape: Shape,
    rate: float, rounds: int,
) -> dict[str, Times]:
    """All variants side by side."""
    modules = {name: v.module(shape) for name, v in variants.items()}
    steps = {name: step(m, shape) for name, m in modules.items()}
    times = interleaved(steps, rounds)
    rows = []
    for name, variant in variants.items():
        cpu = times[name].cpu
        work = counted(variant, shape, pairs_kept(variant, steps[name])) / 1e9
        middle = statistics.median(cpu)
        rows.append([
            name,
            gamma_entropy(modules[name]),
            f"{middle:.2f}",
            f"{statistics.median(times[name].wall):.2f}",
            ratio(cpu, times[MDLM].cpu),
            ratio(cpu, times["M=1"].cpu),
            f"{peaks[name]:.0f}",
            f"{peaks[name] / peaks[MDLM]:.2f}",
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
    return times


def growth_with_components(sheet: Sheet, rounds: int) -> list[str]:
    """How the cost grows with M; returns the row for the targets."""
    base, ms = Shape(), (1, 2, 4, 8, 16)
    kinds: dict[str, Callable[[int], Variant]] = {
        "dense": lambda M: lkf(M, peaked=True),
        GROWN: lambda M: lkf(M, "two_phase", peaked=True, threshold=1e-3),
        "drawn S=2, flat": lambda M: lkf(M, "drawn"),
    }
    modules = {
        f"{kind} {M}": make(M).module(base)
        for kind, make in kinds.items() for M in ms if M <= 8 or kind != "dense"
    }
    times = interleaved({n: step(m, base) for n, m in modules.items()}, rounds)
    sheet.seconds("growth with M", times)
    reference = times["dense 1"].cpu
    grown = {name: median_ratio(found.cpu, reference) for name, found in times.items()}
    rows = [
        [kind, *(f"{grown[f'{kind} {M}']:.2f}" if f"{kind} {M}" in grown else "" for M in ms)]
        for kind in kinds
    ]
    low, high = 2, 8
    added = {k: (grown[f"{k} {high}"] - grown[f"{k} {low}"]) / (high - low) for k in kinds}
    entropy = gamma_entropy(modules[f"{GROWN} {high}"])
    each = ", ".join(f"{kind} {cost:.2f}" for kind, cost in added.items())
    sheet.table(
        "growth with M",
        "Growth with M: time over that of M = 1",
        ["", *(f"M={M}" for M in ms)],
        rows,
        f"A component more, between M = {low} and {high}, costs in M = 1 steps: {each}. The "
        f"entropy of gamma at M = {high} in the two-phase row is {entropy} nats.",
    )
    label = f"a component more against a dense one, {GROWN}, H(gamma) = {entropy} nats"
    return target(label, 0.45, added[GROWN] / added["dense"])


def growth_with_sizes(sheet: Sheet, rounds: int) -> None:
    """How the cost grows with L, V and B."""
    base = Shape()
    three = {name: VARIANTS[name] for name in (MDLM, "M=1", FLAT)}
    shapes = {
        "L=64": base._replace(length=64), "L=128": base, "L=256": base._replace(length=256),
        "V=2048": base._replace(vocab=2048), "V=8192": base._replace(vocab=8192),
        "B=2": base._replace(batch=2), "B=8": base._replace(batch=8),
    }
    steps = {
        f"{where} {name}": step(v.module(shape), shape)
        for where, shape in shapes.items() for name, v in three.items()
    }
    times = interleaved(steps, rounds)
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


def targets(times: dict[str, Times], peaks: dict[str, float]) -> list[list[str]]:
    """What was asked of a step, and what this run says."""

    def time(a: str, b: str) -> float:
        return median_ratio(times[a].cpu, times[b].cpu)

    def peak(a: str, b: str) -> float:
        return peaks[a] / peaks[b]

    return [
        target("M=8 drawn S=2 / MDLM, time", 1.6, time(FLAT, MDLM)),
        target("M=8 exact (dense, chunked) / MDLM, time", 3.0, time(EXACT, MDLM)),
        target("M=8 drawn S=2 / MDLM, peak memory", 1.0, peak(FLAT, MDLM)),
        target("M=8 exact (dense, chunked) / MDLM, peak memory", 1.0, peak(EXACT, MDLM)),
        target("M=8 exact (two-phase 0) / MDLM, peak memory", 1.0, peak(TWO_PHASE, MDLM)),
        target("M=8 drawn S=2 / M=8 naive, time", 1 / 2, time(FLAT, NAIVE)),
        target("M=8 exact (dense, chunked) / M=8 naive, time", 1 / 2, time(EXACT, NAIVE)),
        target("M=8 drawn S=2 / M=8 naive, peak memory", 1 / 6, peak(FLAT, NAIVE)),
        target("M=8 exact (dense, chunked) / M=8 naive, peak memory", 1 / 6, peak(EXACT, NAIVE)),
        target("M=8 drawn S=2 / our M=1, time", 2.2, time(FLAT, "M=1")),
        target("M=8 drawn S=2 / our M=1 in MDLM's order, time", 2.2, time(FLAT, ORDER)),
        target("M=1 / MDLM, time", 1 / 2, time("M=1", MDLM)),
        target("M=1 / MDLM, peak memory", 1 / 2, peak("M=1", MDLM)),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--peak", metavar="VARIANT")
    parser.add_argument("--only-build", action="store_true")
    parser.add_argument("--only", help="names that contain this, beside MDLM and M=1")
    options = parser.parse_args()
    variants = copy.copy(VARIANTS)
    if has_upstream():
        variants["MDLM, upstream"] = Variant(0, upstream=True)
    if options.only:
        variants = {
            n: v for n, v in variants.items() if n in (MDLM, "M=1") or options.only in n
        }
    shape = Shape()
    if options.peak:
        run = step(variants[options.peak].module(shape), shape)
        if not options.only_build:
            run()
        print(peak_mb())
        return 0
    peaks = peaks_of(variants)  # before this process grows: a child's peak begins with its parent's
    rates = gemm_rate(shape)
    facts = {"matrix products, GFLOP/s": spelled(rates), "rounds": options.rounds}
    sheet = Sheet("training", "Training step", shape=shape, mask_rate=MASK_RATE, **facts)
    times = main_table(sheet, variants, peaks, shape, max(rates.values()), options.rounds)
    asked = [] if options.only else targets(times, peaks)
    if not options.quick:
        asked.append(growth_with_components(sheet, max(1, options.rounds - 1)))
        growth_with_sizes(sheet, max(1, options.rounds - 1))
    if asked:
        sheet.table("targets", TARGET_CAPTION, TARGET_COLUMNS, asked)
    return 0


if __name__ == "__main__":
    sys.exit(main())

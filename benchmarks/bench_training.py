"""A training step (loss and gradient, no optimizer) of MDLM and of every LKF variant.

One table from one run: interleaved rounds, ratios with spread, peak memory of a fresh process
above one that only builds the model and the batch, and the distance to the counted arithmetic.

MDLM's own code is a row of its own where a checkout is (external/mdlm or $MDLM_HOME).

Options: --rounds N, --quick (no growth tables), --only TEXT (variants whose name holds it).
"""

from __future__ import annotations

import argparse
import copy
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from harness import (
    MASK_INDEX,
    Shape,
    Words,
    config_for,
    fresh_peak,
    gemm_rate,
    has_upstream,
    head_flops,
    heading,
    interleaved,
    layer_flops,
    median_ratio,
    note,
    peak_mb,
    ratio,
    roughen,
    table,
    upstream_class,
)

from lkf_plugin.host.builtin import Diffusion
from lkf_plugin.lightning import bind

FLAT, PEAKED = 0.1, 30.0  # scales of the latent embedding
MDLM = "MDLM"
MASK_RATE = 0.5


@dataclass
class Variant:
    """One row of the table."""

    M: int
    overrides: list[str] = field(default_factory=list)
    latent_scale: float = FLAT
    upstream: bool = False

    def module(self, shape: Shape) -> Any:
        """A Diffusion module ready to train."""
        if self.M == 0:
            config = config_for(shape, ["model=small", "loss=mdlm"])
            cls: Any = Diffusion
            if self.upstream:
                cls, config = upstream_class(config)
        else:
            chosen = ["model=lkf", "loss=mixture", f"model.num_components={self.M}"]
            latent = f"model.latent_blocks={shape.latent}"
            config = config_for(shape, [*chosen, latent, *self.overrides])
            cls = bind(Diffusion)
        torch.manual_seed(0)
        module = cls(config, Words(shape.vocab))
        roughen(module, self.latent_scale)
        module.train()
        return module


def lkf(M: int, backward: str = "dense", head: str = "chunked", peaked: bool = False, **more: Any):
    overrides = [f"loss.backward={backward}", f"loss.token_head={head}"]
    overrides += [f"loss.{key}={value}" for key, value in more.items()]
    return Variant(M, overrides, PEAKED if peaked else FLAT)


VARIANTS: dict[str, Variant] = {
    MDLM: Variant(0),
    "M=1, MDLM's order": lkf(1, head="mdlm"),
    "M=1, gathered": lkf(1, head="full"),
    "M=1": lkf(1),
    "M=4 naive": lkf(4, head="mdlm"),
    "M=4 dense": lkf(4),
    "M=4 drawn S=2": lkf(4, "drawn"),
    "M=8 naive": lkf(8, head="mdlm"),
    "M=8 dense, gathered": lkf(8, head="full"),
    "M=8 dense, chunked": lkf(8),
    "M=8 two-phase 0, flat": lkf(8, "two_phase"),
    "M=8 two-phase 1e-3, flat": lkf(8, "two_phase", threshold=1e-3),
    "M=8 drawn S=1, flat": lkf(8, "drawn", drawn=1),
    "M=8 drawn S=2, flat": lkf(8, "drawn"),
    "M=8 dense, peaked": lkf(8, peaked=True),
    "M=8 two-phase 0, peaked": lkf(8, "two_phase", peaked=True),
    "M=8 two-phase 1e-3, peaked": lkf(8, "two_phase", peaked=True, threshold=1e-3),
    "M=8 drawn S=2, peaked": lkf(8, "drawn", peaked=True),
    "M=8 keep > 0.5, draw 1, peaked": lkf(8, "drawn", peaked=True, drawn=1, keep_above=0.5),
}


def batch_for(shape: Shape) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    x0 = torch.randint(MASK_INDEX + 1, shape.vocab, (shape.batch, shape.length))
    return x0, torch.ones(shape.batch, shape.length)


def step(module: Any, shape: Shape) -> Callable[[], None]:
    """One micro-batch: loss and gradient."""
    x0, attention = batch_for(shape)

    def run() -> None:
        module._loss(x0, attention).loss.backward()
        module.zero_grad(set_to_none=True)

    return run


def gamma_entropy(module: Any) -> str:
    found = module._extras.get("gamma_entropy") if hasattr(module, "_extras") else None
    return "" if found is None else f"{found.item():.2f}"


def pairs_kept(variant: Variant, entropy: float) -> float:
    """Components a sequence with a backward pass, for the count of operations."""
    text = " ".join(variant.overrides)
    if "drawn" in text and "backward=drawn" in text:
        S = 1 if "loss.drawn=1" in text else 2
        effective = 2.718**entropy
        return min(variant.M, 1 + (S - 1) * (1 - 1 / max(effective, 1)))
    if "two_phase" in text:
        return min(variant.M, 2.718**entropy)
    return variant.M


def counted(variant: Variant, shape: Shape, entropy: float) -> float:
    """Operations of a step that no exact implementation of this variant can leave out."""
    tokens = shape.batch * shape.length
    layer, head = layer_flops(shape), head_flops(shape)
    if variant.M == 0:
        return tokens * 3 * (shape.blocks * layer + head)
    trunk = 3 * (shape.blocks - shape.latent) * layer
    if variant.M == 1:
        return tokens * (trunk + 3 * shape.latent * layer + 3 * MASK_RATE * head)
    latent, masked = shape.latent * layer, MASK_RATE * head
    kept = pairs_kept(variant, entropy)
    scored = 0.0 if "loss.backward=dense" in variant.overrides else variant.M
    return tokens * (trunk + scored * (latent + masked) + kept * 3 * (latent + masked))


def print_training(shape: Shape, rounds: int, variants: dict[str, Variant]) -> dict[str, Any]:
    idle = {M: fresh_peak(__file__, name, "--only-build") for M, name in ((0, MDLM), (1, "M=1"))}
    peaks = {}
    for name, variant in variants.items():
        if variant.upstream:
            idle[0] = fresh_peak(__file__, name, "--only-build")
        peaks[name] = fresh_peak(__file__, name) - idle[min(variant.M, 1)]
        note(f"peak of {name}: {peaks[name]:.0f} MB")
    rates = gemm_rate(shape)
    print(f"\nShape: {shape}. Matrix products, GFLOP/s: " + ", ".join(
        f"{name} {rate:.0f}" for name, rate in rates.items()
    ))
    modules = {name: v.module(shape) for name, v in variants.items()}
    times = interleaved({name: step(m, shape) for name, m in modules.items()}, rounds)
    rate = max(rates.values())
    rows = []
    for name, variant in variants.items():
        cpu = times[name].cpu
        entropy = gamma_entropy(modules[name])
        work = counted(variant, shape, float(entropy or 0)) / 1e9
        rows.append([
            name,
            entropy,
            f"{sorted(cpu)[len(cpu) // 2]:.2f}",
            f"{sorted(times[name].wall)[len(cpu) // 2]:.2f}",
            ratio(cpu, times[MDLM].cpu),
            ratio(cpu, times["M=1"].cpu) if "M=1" in times else "",
            f"{peaks[name]:.0f}",
            f"{peaks[name] / peaks[MDLM]:.2f}",
            f"{work:.0f}",
            f"{sorted(cpu)[len(cpu) // 2] * rate / torch.get_num_threads() / work:.1f}",
        ])
    table(
        ["variant", "H(gamma), nats", "CPU-s", "wall s", "time / MDLM", "time / M=1", "peak MB",
         "peak / MDLM", "GFLOP", "time / limit"],
        rows,
    )
    return {"times": times, "peaks": peaks}


def print_growth(rounds: int) -> None:
    """How the cost grows with M, L, V and B."""
    base = Shape()
    ms = (1, 2, 4, 8, 16)
    kinds: dict[str, Callable[[int], Variant]] = {
        "dense": lambda M: lkf(M, peaked=True),
        "two-phase 1e-3, peaked": lambda M: lkf(M, "two_phase", peaked=True, threshold=1e-3),
        "drawn S=2, flat": lambda M: lkf(M, "drawn"),
    }
    modules = {
        f"{kind} {M}": make(M).module(base)
        for kind, make in kinds.items() for M in ms if M <= 8 or kind != "dense"
    }
    times = interleaved({n: step(m, base) for n, m in modules.items()}, rounds)
    reference = times["dense 1"].cpu
    rows = []
    for kind in kinds:
        cells = [
            f"{median_ratio(times[f'{kind} {M}'].cpu, reference):.2f}"
            if f"{kind} {M}" in times else "" for M in ms
        ]
        rows.append([kind, *cells])
    print("\nGrowth with M: time over that of M = 1.")
    table(["", *(f"M={M}" for M in ms)], rows)
    low, high = 2, 8
    added = {
        kind: (median_ratio(times[f"{kind} {high}"].cpu, reference)
               - median_ratio(times[f"{kind} {low}"].cpu, reference)) / (high - low)
        for kind in kinds
    }
    entropy = gamma_entropy(modules["two-phase 1e-3, peaked 8"])
    print(
        "\nEach component added between M = 2 and 8 costs, in M = 1 steps: "
        + ", ".join(f"{kind} {cost:.2f}" for kind, cost in added.items())
        + f"; two-phase over dense {added['two-phase 1e-3, peaked'] / added['dense']:.2f} "
        f"(gamma entropy {entropy} nats)."
    )
    del modules
    three = {MDLM: VARIANTS[MDLM], "M=1": VARIANTS["M=1"],
             "M=8 drawn S=2": VARIANTS["M=8 drawn S=2, flat"]}
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
    rows = []
    for where in shapes:
        mdlm = times[f"{where} {MDLM}"].cpu
        rows.append([
            where,
            f"{sorted(mdlm)[len(mdlm) // 2]:.2f}",
            *(ratio(times[f"{where} {n}"].cpu, mdlm) for n in list(three)[1:]),
        ])
    print("\nGrowth with L, V and B: time over MDLM's own at the same sizes.")
    table(["", "MDLM, CPU-s", "M=1 / MDLM", "M=8 drawn S=2 / MDLM"], rows)


def print_targets(found: dict[str, Any]) -> None:
    """The targets, with what this run says."""
    times, peaks = found["times"], found["peaks"]

    def t(a: str, b: str) -> float:
        return median_ratio(times[a].cpu, times[b].cpu)

    drawn, exact, naive = "M=8 drawn S=2, flat", "M=8 dense, chunked", "M=8 naive"
    two = "M=8 two-phase 0, flat"
    lines: list[tuple[str, str, float, bool]] = []
    for label, limit, value in (
        ("M=8 drawn S=2 over MDLM, time", 1.6, t(drawn, MDLM)),
        ("M=8 exact over MDLM, time (dense, chunked)", 3.0, t(exact, MDLM)),
        ("M=8 drawn S=2 over MDLM, peak", 1.0, peaks[drawn] / peaks[MDLM]),
        ("M=8 exact over MDLM, peak (dense, chunked)", 1.0, peaks[exact] / peaks[MDLM]),
        ("M=8 exact over MDLM, peak (two-phase 0)", 1.0, peaks[two] / peaks[MDLM]),
        ("M=8 drawn S=2 over naive, time", 0.5, t(drawn, naive)),
        ("M=8 exact over naive, time", 0.5, t(exact, naive)),
        ("M=8 drawn S=2 over naive, peak", 1 / 6, peaks[drawn] / peaks[naive]),
        ("M=8 exact over naive, peak", 1 / 6, peaks[exact] / peaks[naive]),
        ("M=8 drawn S=2 over our M=1", 2.2, t(drawn, "M=1")),
        ("M=8 drawn S=2 over our M=1 in MDLM's order", 2.2, t(drawn, "M=1, MDLM's order")),
        ("M=1 over MDLM, time", 0.5, t("M=1", MDLM)),
        ("M=1 over MDLM, peak", 0.5, peaks["M=1"] / peaks[MDLM]),
    ):
        lines.append((label, f"{limit:.2f}", value, value <= limit))
    table(
        ["target", "at most", "found", "met"],
        [[a, b, f"{c:.2f}", "yes" if d else "no"] for a, b, c, d in lines],
    )


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
    heading("Training step")
    found = print_training(shape, options.rounds, variants)
    if not options.only:
        print_targets(found)
    if not options.quick:
        print_growth(max(1, options.rounds // 2))
    return 0


if __name__ == "__main__":
    sys.exit(main())

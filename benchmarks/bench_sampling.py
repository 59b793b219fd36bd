"""Sampling: MDLM's cached sampler as it computes it, and this plugin's chains and selections.

Single chains run on the same network (M = 1) for both; best-of-8 on a network with M = 8. MDLM's
own code is a row of its own where a checkout is (external/mdlm or $MDLM_HOME).

Options: --rounds N, --steps J ..., --name NAME of the record (sampling).
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from typing import Any

import torch
from harness import (
    Shape,
    Words,
    config_for,
    gemm_rate,
    has_upstream,
    head_flops,
    layer_flops,
    roughen,
    spelled,
    upstream_class,
)
from sheet import TARGET_CAPTION, TARGET_COLUMNS, Sheet, target
from timing import interleaved, median_ratio, ratio, timed
from variants import VARIANTS

from lkf_plugin.host.builtin import Diffusion
from lkf_plugin.methods.lkf import bind

MAIN_STEPS, BLOCK_STEPS = 32, 8
BLOCKS = ("tree 4 x 2 over 16", "tree 4 x 2 over 16, late", "chain of 8", "chain of 8, late")


def module_for(shape: Shape, M: int, decode: str, *more: str, upstream: bool = False) -> Any:
    """A Diffusion module ready to sample; M = 0 is MDLM's own network."""
    if M == 0:
        config = config_for(shape, ["model=small", "loss=mdlm"])
        cls: Any = Diffusion
        if upstream:
            cls, config = upstream_class(config)
    else:
        names = ["model=lkf", "loss=mixture", f"model.num_components={M}", f"decode={decode}"]
        config = config_for(shape, [*names, f"model.latent_blocks={shape.latent}", *more])
        cls = bind(Diffusion)
    torch.manual_seed(0)
    module = cls(config, Words(shape.vocab))
    roughen(module, 1.0)
    return module.eval()


def sampler(module: Any, steps: int) -> Callable[[], None]:
    def run() -> None:
        with torch.no_grad():
            module._sample(num_steps=steps, eps=1e-5)

    return run


def mdlm_flops(shape: Shape, steps: int) -> float:
    """MDLM asks the whole network in every step that changed something, and once at the end."""
    calls = steps + 1 if steps < shape.length else shape.length * (1 - 0.37) + 1
    return calls * shape.length * (shape.blocks * layer_flops(shape) + head_flops(shape))


def chain_flops(shape: Shape, calls: float) -> float:
    """The trunk in every call, the head once per token."""
    trunk = calls * shape.length * shape.blocks * layer_flops(shape)
    return trunk + shape.length * head_flops(shape)


def blocks_flops(shape: Shape, late: bool, calls: float, passes: float) -> float:
    """With latents per block: the branch once for every component of a row, or behind attention.

    Args:
        late: attention is shared, and the MLPs of a component run once a token.
        calls, passes: of the trunk and of the branch, per sample.
    """
    layer, mlp = layer_flops(shape), 16 * shape.d**2
    if late:
        trunk = calls * shape.length * (shape.blocks * layer - mlp)
        return trunk + shape.length * (shape.latent * mlp + head_flops(shape))
    trunk = calls * shape.length * (shape.blocks - shape.latent) * layer
    branch = passes * shape.length * shape.latent * layer
    return trunk + branch + shape.length * head_flops(shape)


def passes_counted(module: Any) -> list[int]:
    """Grows by the rows of every pass of the latent branch."""
    backbone, rows = module.backbone, []
    plain = backbone.branch_hidden

    def counting(state: Any, at: Any, row_R: torch.Tensor, component_R: torch.Tensor) -> Any:
        rows.append(len(row_R))
        return plain(state, at, row_R, component_R)

    backbone.branch_hidden = counting
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, nargs="*", default=[1, 2, 4, 8, 16, 32, 64, 128])
    parser.add_argument("--name", default="sampling", help="of the record, for a run of a few")
    options = parser.parse_args()
    shape = Shape(batch=2)
    rates = gemm_rate(shape)
    facts = {"matrix products, GFLOP/s": spelled(rates), "rounds": options.rounds}
    sheet = Sheet(options.name, "Sampling", shape=shape, draws="float64", **facts)
    modules = {"MDLM": module_for(shape, 0, "")}
    if has_upstream():
        modules["MDLM, upstream"] = module_for(shape, 0, "", upstream=True)
    modules["single chain, M=1"] = module_for(shape, 1, "commit")
    modules["single chain, M=8"] = module_for(shape, 8, "commit")
    best = {
        "best of 8, nelbo T=4": ("best_of_m", "decode.selector=nelbo"),
        "best of 8, evidence": ("best_of_m", "decode.selector=evidence"),
        "best of 8, halving": ("halving",),
    }
    for name, decode in best.items():
        modules[name] = module_for(shape, 8, *decode)
    blocks = {f"single chain, {name}": VARIANTS[name] for name in BLOCKS}
    for name, variant in blocks.items():
        modules[name] = module_for(shape, variant.K or 1, "commit", *variant.overrides)
    variants = {}
    for steps in options.steps:
        for name, module in modules.items():
            if name in best and steps != MAIN_STEPS:
                continue
            if name in blocks and steps not in (BLOCK_STEPS, MAIN_STEPS):
                continue
            variants[f"{name}, J={steps}"] = sampler(module, steps)
    calls: dict[str, float] = {}
    passes = {name: passes_counted(modules[name]) for name in blocks}
    passed: dict[str, float] = {}

    def counting(name: str, run: Callable[[], None]) -> Callable[[], None]:
        kind = name.rsplit(",", 1)[0]
        module = modules[kind]

        def counted() -> None:
            if kind in passes:
                passes[kind].clear()
            run()
            if getattr(module, "last_decoded", None) is not None:
                calls[name] = module.last_decoded.network_calls
            if kind in passes:
                passed[name] = sum(passes[kind]) / shape.batch

        return counted

    warmed = [name for name in variants if name.endswith(f", J={min(options.steps)}")]
    times = interleaved(
        {name: timed(counting(name, run)) for name, run in variants.items()},
        options.rounds,
        warmed,
    )
    sheet.seconds("sampling", times)
    rate = max(rates.values())
    rows = []
    for name in variants:
        kind, steps_text = name.rsplit(", J=", 1)
        steps, cpu = int(steps_text), times[name].cpu
        middle = statistics.median(cpu)
        wall = statistics.median(times[name].wall)
        if kind.startswith("MDLM"):
            work, asked = mdlm_flops(shape, steps), ""
        elif kind in blocks:
            work = blocks_flops(shape, blocks[kind].late, calls[name], passed[name])
            asked = f"{calls[name]:.1f}"
        else:
            work, asked = chain_flops(shape, calls[name]), f"{calls[name]:.1f}"
        limit = shape.batch * work / rate / 1e9 * torch.get_num_threads()
        rows.append([
            kind, str(steps), f"{middle:.2f}", f"{shape.batch / wall:.2f}", asked,
            "" if not asked else f"{calls[name] * shape.batch / wall:.0f}",
            ratio(times[f"MDLM, J={steps}"].cpu, cpu),
            ratio(cpu, times[f"single chain, M=8, J={steps}"].cpu),
            f"{middle / limit:.1f}" if kind not in best else "",
        ])
    sheet.table(
        "sampling",
        "Sampling, all variants in one run",
        ["variant", "J", "CPU-s per batch", "samples / s", "calls per sample", "calls / s",
         "faster than MDLM", "in single chains (M=8)", "time / limit"],
        rows,
        "Ratios are medians over the rounds with their extremes, of CPU seconds. MDLM is its "
        "cached sampler (ddpm_cache). The limit counts the trunk and the branch in every call and "
        "the head once per token, over the best measured product.",
    )
    asked_for = []
    if BLOCK_STEPS in options.steps:
        at = f", J={BLOCK_STEPS}"
        for name in blocks:
            times_over = median_ratio(times[name + at].cpu, times[f"single chain, M=8{at}"].cpu)
            asked_for.append(target(f"{name}{at}, in single chains (M=8), time", 1.5, times_over))
    if MAIN_STEPS in options.steps:
        at = f", J={MAIN_STEPS}"

        def over(a: str, b: str) -> float:
            return median_ratio(times[a + at].cpu, times[b + at].cpu)

        asked_for += [
            target(f"single chain, M={M}{at} / MDLM's sampler, time", 1 / 5,
                   over(f"single chain, M={M}", "MDLM"))
            for M in (1, 8)
        ]
        halving = over("best of 8, halving", "single chain, M=8")
        asked_for.append(target(f"best of 8 by halving{at}, in single chains", 3.5, halving))
    if asked_for:
        sheet.table("targets", TARGET_CAPTION, TARGET_COLUMNS, asked_for)
    return 0


if __name__ == "__main__":
    sys.exit(main())

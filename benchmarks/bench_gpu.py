"""Training step and sampling at the paper's size on one GPU, in bf16; at most 8 minutes.

    python benchmarks/bench_gpu.py            # needs a GPU
    python benchmarks/bench_gpu.py --tiny     # the same code at small sizes on the CPU

MFU is counted operations over time and the measured rate of a bf16 square product. GB/s counts the
logits that a variant computes, five times each (written, read for the sum, read and written for
the softmax, read for the gradient), over its time.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from bench_sampling import chain_flops, mdlm_flops, module_for
from harness import Shape
from sheet import Sheet
from timing import note
from variants import (
    MASK_RATE,
    MDLM,
    VARIANTS,
    Variant,
    batch_for,
    counted,
    gamma_entropy,
    pairs_kept,
)

PAPER = Shape(d=768, blocks=12, heads=12, latent=4, length=128, vocab=30_522, batch=128)
TINY = Shape(d=64, blocks=3, heads=2, latent=1, length=32, vocab=512, batch=4)
NAIVE = ("M=4 naive", "M=8 naive")
NAIVE_SHARE = 8  # naive mixtures get an eighth of the batch: their logits would not fit
SECONDS = 7 * 60


class Device:
    """One accelerator, or the CPU standing in for it."""

    def __init__(self, tiny: bool) -> None:
        self.kind = "cpu" if tiny else "cuda"
        self.tiny = tiny

    def wait(self) -> None:
        if not self.tiny:
            torch.cuda.synchronize()

    def autocast(self) -> Any:
        return contextlib.nullcontext() if self.tiny else torch.autocast("cuda", torch.bfloat16)

    def time(self, run: Callable[[], Any], repeats: int) -> list[float]:
        """Seconds of each repetition, after two that are not counted."""
        seconds = []
        for number in range(repeats + 2):
            self.wait()
            start = time.perf_counter()
            run()
            self.wait()
            if number >= 2:
                seconds.append(time.perf_counter() - start)
        return sorted(seconds)

    def gemm_rate(self) -> float:
        """Operations per second of a large square product."""
        n, dtype = (256, torch.float32) if self.tiny else (8192, torch.bfloat16)
        a = torch.randn(n, n, device=self.kind, dtype=dtype)
        return 2 * n**3 / self.time(lambda: a @ a, 10)[0]

    def bandwidth(self) -> float:
        """Bytes per second of a copy, read and write."""
        n = 1 << (20 if self.tiny else 28)
        a = torch.empty(n, device=self.kind)
        b = torch.empty_like(a)
        return 2 * 4 * n / self.time(lambda: b.copy_(a), 10)[0]

    def peak_gb(self) -> float:
        return 0.0 if self.tiny else torch.cuda.max_memory_allocated() / 2**30

    def forget_peak(self) -> None:
        if not self.tiny:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


def logits_computed(variant: Variant, shape: Shape, kept: float) -> float:
    """Rows times V of the head products' outputs of a step; ``kept`` components per position."""
    tokens = shape.batch * shape.length
    if variant.M == 0 or "loss.token_head=mdlm" in variant.overrides:
        return max(variant.M, 1) * tokens * shape.vocab
    rebuilt = 0.0 if "loss.token_head=full" in variant.overrides else kept
    return (variant.M + rebuilt) * MASK_RATE * tokens * shape.vocab


def training(sheet: Sheet, device: Device, shape: Shape, gemm: float, repeats: int) -> None:
    start, rows, mdlm = time.perf_counter(), [], 0.0
    for name, variant in VARIANTS.items():
        if time.perf_counter() - start > SECONDS * 0.6:
            note(f"out of time before {name}")
            break
        sizes = shape._replace(batch=max(1, shape.batch // NAIVE_SHARE)) if name in NAIVE else shape
        device.forget_peak()
        module = variant.module(sizes).to(device.kind)
        held = 0.0 if device.tiny else torch.cuda.memory_allocated() / 2**30
        x0, attention = (x.to(device.kind) for x in batch_for(sizes))

        def step(module: Any = module, x0: Any = x0, attention: Any = attention) -> None:
            with device.autocast():
                loss = module._loss(x0, attention).loss
            loss.backward()
            module.zero_grad(set_to_none=True)

        try:
            seconds = device.time(step, repeats)
        except torch.cuda.OutOfMemoryError:
            rows.append([name, str(sizes.batch), "", "out of memory", "", "", "", "", ""])
            continue
        entropy = gamma_entropy(module)
        middle = seconds[len(seconds) // 2] / sizes.batch
        mdlm = middle if name == MDLM else mdlm
        kept = pairs_kept(variant, step)
        work = counted(variant, sizes, kept)
        traffic = 5 * 4 * logits_computed(variant, sizes, kept.heads)
        rows.append([
            name, str(sizes.batch), entropy, f"{middle * 1e3:.2f}",
            f"{seconds[0] / sizes.batch * 1e3:.2f} to {seconds[-1] / sizes.batch * 1e3:.2f}",
            f"{middle / mdlm:.2f}", f"{device.peak_gb() - held:.2f}",
            f"{work / (middle * sizes.batch) / gemm:.2f}",
            f"{traffic / (middle * sizes.batch) / 1e9:.0f}",
        ])
        note(f"{name}: {middle * 1e3:.2f} ms per sequence")
        del module, step
    sheet.table(
        "step",
        "A training step",
        ["variant", "B", "H(gamma)", "ms per sequence", "min to max", "over MDLM", "peak GB", "MFU",
         "logit GB/s"],
        rows,
    )


def sampling(sheet: Sheet, device: Device, shape: Shape, gemm: float, steps: int) -> None:
    kinds: dict[str, tuple[int, list[str]]] = {
        "MDLM": (0, [""]),
        "single chain, M=1": (1, ["commit"]),
        "single chain, M=8": (8, ["commit"]),
        "single chain, M=8, captured": (8, ["commit", "sampling.compile_mode=reduce-overhead"]),
        "best of 8, nelbo": (8, ["best_of_m", "decode.selector=nelbo"]),
        "best of 8, evidence": (8, ["best_of_m", "decode.selector=evidence"]),
        "best of 8, halving": (8, ["halving"]),
    }
    rows, mdlm = [], 0.0
    for name, (M, decode) in kinds.items():
        module = module_for(shape, M, *decode).to(device.kind)

        def run(module: Any = module) -> None:
            with torch.no_grad(), device.autocast():
                module._sample(num_steps=steps, eps=1e-5)

        seconds = device.time(run, 2)
        middle = seconds[0] / shape.batch
        mdlm = middle if M == 0 else mdlm
        decoded = getattr(module, "last_decoded", None)
        asked = steps + 1 if decoded is None else decoded.network_calls
        work = mdlm_flops(shape, steps) if M == 0 else chain_flops(shape, asked)
        rows.append([
            name, str(steps), f"{1 / middle:.1f}", f"{asked / middle:.0f}", f"{mdlm / middle:.2f}",
            f"{work / middle / gemm:.2f}",
        ])
    columns = ["variant", "J", "samples / s", "calls / s", "faster than MDLM", "MFU"]
    sheet.table("sampling", "Sampling", columns, rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--batch", type=int)
    options = parser.parse_args()
    if not options.tiny and not torch.cuda.is_available():
        print("No GPU here; --tiny runs the same code at small sizes on the CPU.")
        return 0
    device = Device(options.tiny)
    shape = TINY if options.tiny else PAPER
    if options.batch:
        shape = shape._replace(batch=options.batch)
    gemm = device.gemm_rate()
    tera, giga = gemm / 1e12, device.bandwidth() / 1e9
    name, title = ("gpu_tiny", "GPU script, tried on the CPU") if options.tiny else ("gpu", "GPU")
    measured = f"square product {tera:.2f} TFLOP/s, copy {giga:.0f} GB/s"
    precision = "float32" if options.tiny else "bf16 autocast"
    sheet = Sheet(name, title, shape=shape, precision=precision, measured=measured)
    training(sheet, device, shape, gemm, repeats=2 if options.tiny else 8)
    shape = shape._replace(batch=min(64, shape.batch))
    sampling(sheet, device, shape, gemm, steps=4 if options.tiny else 32)
    return 0


if __name__ == "__main__":
    sys.exit(main())

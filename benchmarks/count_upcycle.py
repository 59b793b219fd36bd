"""What ``experiment=upcycle`` costs from mdlm-owt on one GPU: operations counted, not measured.

    python benchmarks/count_upcycle.py
    python benchmarks/count_upcycle.py --sequences 128 --steps 20000 --components 16

Per token, a step runs the lower blocks forward and backward once, the latent blocks and the head
(at masked positions, half of them) forward once for each of M components, and forward and backward
for those that are drawn. The time is that count over a share of the card's peak; measure the share
with ``python benchmarks/bench_gpu.py`` where there is a card.
"""

from __future__ import annotations

import argparse

from harness import Shape
from variants import Kept, Variant, counted

PEAK = 989e12  # H100 SXM, dense bf16, the vendor's figure
SHARES = (0.2, 0.35, 0.5)
# mdlm-owt: 12 blocks of width 768, 1,024 tokens of GPT-2's vocabulary and the mask
OWT = Shape(d=768, blocks=12, heads=12, latent=4, length=1024, vocab=50_258, batch=1)


def per_token(shape: Shape, components: int, drawn: float) -> float:
    """Operations of a training step on one token, counted as on docs/performance.md."""
    return counted(Variant(components), shape, Kept(drawn, drawn)) / (shape.batch * shape.length)


def weights(shape: Shape, components: int, cond_dim: int = 128) -> int:
    """Numbers in the network, latents and router too (biases and norms left out)."""
    block = 12 * shape.d**2 + 6 * shape.d * cond_dim
    router = shape.d * shape.d + shape.d * components + components * cond_dim
    return 2 * shape.vocab * shape.d + shape.blocks * block + router


def main() -> None:
    """Prints a table in Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--components", type=int, default=8, help="M")
    parser.add_argument("--drawn", type=float, default=2.0, help="components with a backward pass")
    parser.add_argument("--sequences", type=int, default=512, help="of a step")
    parser.add_argument("--steps", type=int, nargs="+", default=[1_000, 5_000, 20_000])
    options = parser.parse_args()
    shape, tokens = OWT, options.sequences * OWT.length
    one = per_token(shape, options.components, options.drawn)
    plain = per_token(shape, 1, 1)
    size = weights(shape, options.components)
    print(
        f"{size / 1e6:.0f} million weights, {size * 16 / 2**30:.1f} GiB with Adam's moments and "
        f"the average in float32. {one / 1e9:.2f} GFLOP a token ({one / plain:.1f} times M = 1), "
        f"{one * tokens / 1e15:.2f} PFLOP a step of {options.sequences} sequences.\n"
    )
    shares = [f"{share:.0%} of peak" for share in SHARES]
    print(f"| steps | tokens | {' | '.join(shares)} |\n|---|---|{'---|' * len(SHARES)}")
    for steps in options.steps:
        hours = [one * tokens * steps / (PEAK * share) / 3600 for share in SHARES]
        cells = [f"{hour:.1f} h" for hour in hours]
        print(f"| {steps:,} | {tokens * steps / 1e9:.1f} billion | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()

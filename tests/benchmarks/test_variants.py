"""The benchmarks time what their rows say, and count what cannot be avoided."""

from __future__ import annotations

import pytest
from harness import Shape, head_flops, layer_flops
from variants import (
    MASK_RATE,
    Kept,
    Variant,
    at_site,
    blocks,
    counted,
    gamma_entropy,
    lkf,
    pairs_kept,
    step,
)

SMALL = Shape(d=16, blocks=2, heads=2, latent=1, length=16, vocab=120, batch=4)


@pytest.mark.parametrize(
    ("variant", "least", "most"),
    [
        (lkf(4), (4, 4), (4, 4)),
        (lkf(4, "two_phase"), (4, 4), (4, 4)),
        (lkf(4, "drawn", drawn=1), (1, 1), (1, 1)),
        (lkf(4, "drawn"), (1, 1), (2, 2)),
        (blocks("tree", 2, 2, 4, late=False, drawn=1), (1, 1), (4, 1)),
        (blocks("chain", 1, 4, 1, late=True), (2, 1), (4, 2)),
    ],
)
def test_kept_pairs_are_those_of_the_objective(
    variant: Variant, least: tuple[float, float], most: tuple[float, float]
) -> None:
    module = variant.module(SMALL)
    kept = pairs_kept(variant, step(module, SMALL))
    for low, found, high in zip(least, kept, most, strict=True):
        assert low <= found <= high
    assert float(gamma_entropy(module)) > 0  # scaled down, but no tie


def test_counted_operations() -> None:
    tokens = SMALL.batch * SMALL.length
    layer, head = layer_flops(SMALL), head_flops(SMALL)
    assert counted(Variant(0), SMALL, Kept(0, 0)) == tokens * 3 * (2 * layer + head)
    one = counted(lkf(1), SMALL, Kept(1, 1))
    assert one == tokens * 3 * (2 * layer + MASK_RATE * head)
    component = tokens * (layer + MASK_RATE * head)
    assert counted(lkf(4), SMALL, Kept(4, 4)) == pytest.approx(tokens * 3 * layer + 12 * component)
    drawn = counted(lkf(4, "drawn"), SMALL, Kept(2, 2))
    assert drawn == pytest.approx(tokens * 3 * layer + (4 + 2 * 3) * component)
    apart = counted(blocks("chain", 1, 4, 1, late=False), SMALL, Kept(4, 2))
    heads = (4 + 2 * 3) * MASK_RATE * head
    assert apart == pytest.approx(tokens * (3 * layer + (4 + 4 * 3) * layer + heads))
    # behind attention there is no block of a component, only its MLP where something is masked
    mlp = 16 * SMALL.d**2
    late = counted(at_site(lkf(4, "drawn")), SMALL, Kept(4, 2))
    assert late == pytest.approx(
        tokens * (3 * (2 * layer - mlp) + (4 + 2 * 3) * MASK_RATE * (mlp + head))
    )

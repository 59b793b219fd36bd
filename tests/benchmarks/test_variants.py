"""The benchmarks time what their rows say, and count what cannot be avoided."""

from __future__ import annotations

import pytest
from harness import Shape, head_flops, layer_flops
from variants import MASK_RATE, Variant, counted, gamma_entropy, lkf, pairs_kept, step

SMALL = Shape(d=16, blocks=2, heads=2, latent=1, length=16, vocab=120, batch=4)


@pytest.mark.parametrize(
    ("variant", "least", "most"),
    [
        (lkf(4), 4, 4),
        (lkf(4, "two_phase"), 4, 4),
        (lkf(4, "drawn", drawn=1), 1, 1),
        (lkf(4, "drawn"), 1, 2),
    ],
)
def test_kept_pairs_are_those_of_the_objective(variant: Variant, least: int, most: int) -> None:
    module = variant.module(SMALL)
    assert least <= pairs_kept(variant, step(module, SMALL)) <= most
    assert float(gamma_entropy(module)) > 0  # scaled down, but no tie


def test_counted_operations() -> None:
    tokens = SMALL.batch * SMALL.length
    layer, head = layer_flops(SMALL), head_flops(SMALL)
    assert counted(Variant(0), SMALL, 0) == tokens * 3 * (2 * layer + head)
    one = counted(lkf(1), SMALL, 1)
    assert one == tokens * 3 * (2 * layer + MASK_RATE * head)
    component = tokens * (layer + MASK_RATE * head)
    assert counted(lkf(4), SMALL, 4) == pytest.approx(tokens * 3 * layer + 12 * component)
    drawn = counted(lkf(4, "drawn"), SMALL, 2)
    assert drawn == pytest.approx(tokens * 3 * layer + (4 + 2 * 3) * component)

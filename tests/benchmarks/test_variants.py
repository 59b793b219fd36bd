"""The benchmarks time what their rows say, and count what cannot be avoided."""

from __future__ import annotations

import pytest
from harness import Shape, head_flops, interleaved, layer_flops, median_ratio
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


def test_rounds_are_interleaved_and_the_first_is_not_counted() -> None:
    order: list[str] = []
    run = {name: (lambda name=name: order.append(name)) for name in "ab"}
    times = interleaved(run, rounds=2)
    assert "".join(order) == "ababab"
    assert [len(times[name].cpu) for name in "ab"] == [2, 2]
    order.clear()
    interleaved(run, rounds=1, warmed=["b"])
    assert "".join(order) == "bab"
    assert median_ratio([2.0, 9.0, 4.0], [1.0, 3.0, 4.0]) == 2.0

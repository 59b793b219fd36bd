from __future__ import annotations

import math

import pytest

from lkf_plugin.corpora.few_step import (
    agreement_probability,
    partition_agreement,
    power_gap,
    step_times,
)
from lkf_plugin.errors import UserError


def by_definition(carriers: int, values: float, times: list[float]) -> float:
    """Sum over the step and the number of carriers first revealed."""
    return sum(
        math.comb(carriers, m)
        * (end - start) ** m
        * (1 - end) ** (carriers - m)
        * values ** (1 - m)
        for start, end in zip(times, times[1:], strict=False)
        for m in range(1, carriers + 1)
    )


@pytest.mark.parametrize("carriers", [1, 2, 3, 8, 48])
@pytest.mark.parametrize("values", [1, 2, 4, 16])
def test_closed_form_is_the_double_sum(carriers: int, values: int) -> None:
    for steps in (1, 2, 5, 32):
        expected = by_definition(carriers, values, step_times(steps))
        assert agreement_probability(carriers, values, steps) == pytest.approx(expected, rel=1e-12)
    times = [0.0, 0.1, 0.15, 0.7, 1.0]
    expected = by_definition(carriers, values, times)
    assert agreement_probability(carriers, values, times) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("values", "printed"),
    [
        (16, ["3.7e-09", "0.0390", "0.305", "0.592", "0.781", "0.887"]),
        (8, ["4.8e-07", "0.0489", "0.329", "0.612", "0.794", "0.894"]),
        (4, ["6.1e-05", "0.0775", "0.384", "0.656", "0.820", "0.908"]),
        (2, ["0.0078", "0.192", "0.527", "0.753", "0.875", "0.938"]),
        (1, ["1", "1", "1", "1", "1", "1"]),
    ],
)
def test_table_of_the_hidden_agreement_corpus(values: int, printed: list[str]) -> None:
    for steps, text in zip((1, 2, 4, 8, 16, 32), printed, strict=True):
        unit = (
            10.0 ** -len(text.partition(".")[2]) if "e" not in text else 0.1 * 10 ** int(text[-3:])
        )
        assert abs(agreement_probability(8, values, steps) - float(text)) <= 0.51 * unit


def test_one_step_and_many_steps() -> None:
    assert agreement_probability(8, 16, 1) == pytest.approx(16.0**-7)
    assert agreement_probability(1, 16, 3) == pytest.approx(1.0)
    assert 1 - agreement_probability(8, 16, 100_000) == pytest.approx(3.75e-5, rel=1e-3)


def test_uneven_partition_averages_over_components() -> None:
    expected = 14 / 16 + 2 / 16 * 2.0**-7
    assert partition_agreement(8, [1] * 14 + [2], 1) == pytest.approx(expected)


def test_power_gap_does_not_cancel() -> None:
    assert power_gap(1.0, 1e-18, 3) == pytest.approx(3e-18, rel=1e-12)
    assert power_gap(0.0, 0.5, 2) == 0.25


@pytest.mark.parametrize("steps", [0, -1, [0.0], [0.0, 0.5], [0.0, 0.6, 0.6, 1.0], [0.1, 1.0]])
def test_bad_grids_are_refused(steps: int | list[float]) -> None:
    with pytest.raises(UserError):
        step_times(steps)

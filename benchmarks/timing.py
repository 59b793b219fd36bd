"""Repetitions of several variants, interleaved round by round, and their ratios."""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable, Container, Mapping
from typing import Any, NamedTuple

import torch


class Seconds(NamedTuple):
    """What one repetition took."""

    wall: float
    cpu: float


class Times(NamedTuple):
    """Seconds of the repetitions of one variant."""

    wall: list[float]
    cpu: list[float]


Timed = Callable[[int], Seconds]  # the number of the round -> what its repetition took


def timed(run: Callable[[], Any]) -> Timed:
    """Times a repetition; random numbers are those of the round."""

    def repeat(number: int) -> Seconds:
        torch.manual_seed(number)
        gc.collect()
        wall, cpu = time.perf_counter(), time.process_time()
        run()
        return Seconds(time.perf_counter() - wall, time.process_time() - cpu)

    return repeat


def interleaved(
    variants: Mapping[str, Timed], rounds: int, warmed: Container[str] | None = None
) -> dict[str, Times]:
    """Every variant once per round, after one round that is not counted.

    Neighbours on the machine then disturb all variants alike.

    Args:
        variants: what to time, by name.
        rounds: that are counted.
        warmed: names that the uncounted round runs; all if none are given.
    """
    times = {name: Times([], []) for name in variants}
    for number in range(rounds + 1):
        for name, repeat in variants.items():
            if not number and warmed is not None and name not in warmed:
                continue
            spent = repeat(number)
            if number:
                times[name].wall.append(spent.wall)
                times[name].cpu.append(spent.cpu)
        note(f"round {number} of {rounds}")
    return times


def median_ratio(a: list[float], b: list[float]) -> float:
    """Median of the rounds' ratios a / b."""
    return statistics.median(x / y for x, y in zip(a, b, strict=True))


def ratio(a: list[float], b: list[float]) -> str:
    """``median_ratio`` with the smallest and the largest."""
    each = [x / y for x, y in zip(a, b, strict=True)]
    return f"{median_ratio(a, b):.2f} ({min(each):.2f} to {max(each):.2f})"


def note(text: str) -> None:
    """Progress, beside the table."""
    print(text, file=sys.stderr, flush=True)

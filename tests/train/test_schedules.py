"""Learning rates at named steps."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from lkf_plugin.errors import UserError
from lkf_plugin.train.schedules import cosine_decay_warmup, linear_decay


def optimizer(*rates: float) -> torch.optim.Optimizer:
    return torch.optim.SGD([{"params": [nn.Parameter(torch.zeros(1))], "lr": r} for r in rates])


def rates(schedule: torch.optim.lr_scheduler.LRScheduler, steps: int) -> list[list[float]]:
    seen = []
    for _ in range(steps + 1):
        seen.append([group["lr"] for group in schedule.optimizer.param_groups])
        schedule.optimizer.step()
        schedule.step()
    return seen


def test_cosine_with_warmup() -> None:
    schedule = cosine_decay_warmup(optimizer(1e-3), total_steps=100, warmup_steps=10.0)
    seen = [lr for (lr,) in rates(schedule, 120)]
    assert seen[0] == pytest.approx(1e-6)
    assert seen[5] == pytest.approx(1e-6 + 0.5 * (1e-3 - 1e-6))
    assert seen[10] == pytest.approx(1e-3)
    assert seen[55] == pytest.approx(1e-6 + (1e-3 - 1e-6) * 0.5 * (1 + math.cos(math.pi / 2)))
    assert seen[100] == pytest.approx(1e-6) == pytest.approx(seen[120])


def test_linear_decay_holds_then_meets_zero() -> None:
    schedule = linear_decay(optimizer(1.0, 0.1), total_steps=10, warmup_steps=2, decay_fraction=0.4)
    seen = rates(schedule, 11)
    first = [0, 0.5, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25, 0, 0]
    assert [a for a, _ in seen] == pytest.approx(first)
    assert [b for _, b in seen] == pytest.approx([0.1 * lr for lr in first])


@pytest.mark.parametrize("fraction", [0.0, 1.5])
def test_decay_fraction_must_make_sense(fraction: float) -> None:
    with pytest.raises(UserError, match="decay_fraction"):
        linear_decay(optimizer(1.0), total_steps=10, warmup_steps=0, decay_fraction=fraction)


def test_warmup_longer_than_the_run() -> None:
    with pytest.raises(UserError, match="warmup_steps"):
        cosine_decay_warmup(optimizer(1.0), total_steps=5, warmup_steps=5)

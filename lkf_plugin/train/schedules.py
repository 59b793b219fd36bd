"""Learning-rate schedules over optimizer steps, to be named as ``_target_`` in configs.

``constant_warmup`` is transformers' own function, as in MDLM. The two here work on any number of
parameter groups, each with its own rate. None keeps state beyond torch's step counter, so a
schedule resumes exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from lkf_plugin.errors import UserError


def _per_group(optimizer: Optimizer, rate: Callable[[int, float], float]) -> LambdaLR:
    """A schedule from ``rate(step, base_lr) -> lr``, which torch wants as factors."""

    def factor_of(base: float) -> Callable[[int], float]:
        return lambda step: rate(step, base) / base if base > 0 else 0.0

    bases = [group.get("initial_lr", group["lr"]) for group in optimizer.param_groups]
    return LambdaLR(optimizer, [factor_of(float(base)) for base in bases])


def cosine_decay_warmup(
    optimizer: Optimizer,
    total_steps: int,
    warmup_steps: float,
    start_lr: float = 1e-6,
    final_lr: float = 1e-6,
) -> LambdaLR:
    """Linear rise from ``start_lr`` over ``warmup_steps``, then half a cosine to ``final_lr``.

    The cosine ends at ``total_steps`` and the rate stays at ``final_lr`` after it.
    Source: MDLM, configs/lr_scheduler/cosine_decay_warmup.yaml (there through timm).
    """
    warmup = int(warmup_steps)
    if not 0 <= warmup < total_steps:
        raise UserError(
            f"lr_scheduler.warmup_steps={warmup_steps} must be less than the {total_steps} steps."
        )

    def rate(step: int, base: float) -> float:
        if step < warmup:
            return start_lr + step * (base - start_lr) / warmup
        done = min((step - warmup) / (total_steps - warmup), 1.0)
        return final_lr + 0.5 * (base - final_lr) * (1 + math.cos(math.pi * done))

    return _per_group(optimizer, rate)


def linear_decay(
    optimizer: Optimizer, total_steps: int, warmup_steps: int, decay_fraction: float
) -> LambdaLR:
    """Linear rise over ``warmup_steps``, a plateau, then a straight line to zero.

    The line covers the last ``decay_fraction`` of ``total_steps`` and meets zero at their end.
    """
    if not 0 < decay_fraction <= 1:
        raise UserError(f"lr_scheduler.decay_fraction={decay_fraction} must lie in (0, 1].")
    decay_steps = decay_fraction * total_steps

    def rate(step: int, base: float) -> float:
        rise = min(step / warmup_steps, 1.0) if warmup_steps > 0 else 1.0
        fall = min(max(total_steps - step, 0) / decay_steps, 1.0)
        return base * min(rise, fall)

    return _per_group(optimizer, rate)

"""A guard against steps that would write NaN or infinity into the weights."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn


class NonFiniteError(RuntimeError):
    """Loss or gradient norm of a step is not finite; the weights were not touched."""


def gradient_norm(parameters: Iterable[nn.Parameter]) -> Tensor:
    """2-norm over all gradients, a 0-dim tensor on their device (zero if there are none)."""
    gradients = [weight.grad for weight in parameters if weight.grad is not None]
    if not gradients:
        return torch.zeros(())
    return torch.nn.utils.get_total_norm(gradients)


def require_finite(loss: Tensor, norm: Tensor, step: int) -> None:
    """Raises unless both are finite; one transfer to the host.

    Args:
        loss: the loss of the step, 0-dim.
        norm: its gradient norm before clipping, 0-dim.
        step: number of the step, counted from 1, for the message.

    Raises:
        NonFiniteError: with both values.
    """
    loss_value, norm_value = torch.stack((loss.double(), norm.to(loss.device).double())).tolist()
    if not (math.isfinite(loss_value) and math.isfinite(norm_value)):
        raise NonFiniteError(
            f"step {step} has loss {loss_value:g} and gradient norm {norm_value:g}: "
            "training stopped before the weights were changed, the last checkpoint is good; "
            "try a lower optim.lr, a longer warmup or precision 32-true."
        )

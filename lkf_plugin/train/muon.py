"""Muon in float32: momentum whose direction is made orthogonal, for the matrices of the blocks.

torch has a Muon from 2.9 on, but it multiplies in bfloat16, which CPUs without bfloat16 units do
so slowly that a step of a small model takes four times as long; and we support torch 2.6.

Source: K. Jordan et al., "Muon: an optimizer for hidden layers" (2024).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

QUINTIC = (3.4445, -4.7750, 2.0315)  # p(s) = a s + b s^3 + c s^5, steep at zero
ITERATIONS = 5


def orthogonalized(matrix: Tensor) -> Tensor:
    """U V^T of ``matrix`` = U S V^T, up to singular values between about 0.7 and 1.2."""
    a, b, c = QUINTIC
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    x = wide / wide.norm().clamp_min(1e-7)
    for _ in range(ITERATIONS):
        gram = x @ x.T
        x = a * x + torch.addmm(gram, gram, gram, beta=b, alpha=c) @ x
    return x if wide is matrix else x.T


class Muon(Optimizer):
    """W <- (1 - lr decay) W - lr sqrt(max(1, rows / columns)) orthogonalized(Nesterov momentum).

    Args:
        params: matrices.
        lr: step; 0.02 is the usual one.
        momentum: of the running sum of gradients.
        weight_decay: decoupled.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float = 0.02,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """One step over all matrices that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._update(weight, weight.grad, group)
        return loss

    def _update(self, weight: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state = self.state[weight]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(grad)
        buffer, mu = state["momentum_buffer"], group["momentum"]
        buffer.lerp_(grad, 1 - mu)
        direction = orthogonalized(torch.lerp(grad, buffer, mu).float())
        rows, columns = weight.shape
        weight.mul_(1 - group["lr"] * group["weight_decay"])
        step = group["lr"] * max(1.0, rows / columns) ** 0.5
        weight.add_(direction.to(weight.dtype), alpha=-step)

"""Means over a whole validation: float64 sums that are added up over all processes."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torchmetrics
from torch import Tensor

Extra = Tensor | float | tuple[Tensor | float, Tensor | float]

LOG2 = math.log(2.0)


class WeightedMeans:
    """Named sums of value x weight and of weight, in float64.

    The sums stay on the device until they are read, so that updates wait for nothing.
    """

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}

    def reset(self) -> None:
        """Forgets everything."""
        self._sums = {}

    def add(self, name: str, total: Tensor, weight: Tensor) -> None:
        """Adds a sum of values (already weighted) and the sum of their weights."""
        pair = torch.stack((total.double(), weight.double()))
        self._sums[name] = self._sums[name] + pair if name in self._sums else pair

    def add_extras(self, extras: Mapping[str, Extra], sequences: int, device: torch.device) -> None:
        """Adds scalars, each weighted by its own weight or else by the number of sequences."""
        for name, extra in extras.items():
            value, weight = extra if isinstance(extra, tuple) else (extra, sequences)
            value, weight = (
                torch.as_tensor(part, device=device).detach().double() for part in (value, weight)
            )
            self.add(name, value * weight, weight)

    def compute(self) -> dict[str, float]:
        """Means over every process (a collective call: all processes have the same names)."""
        if not self._sums:
            return {}
        names = sorted(self._sums)
        table = torch.stack([self._sums[name] for name in names])
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(table)
        return {
            name: total / weight if weight else math.nan
            for name, (total, weight) in zip(names, table.tolist(), strict=True)
        }


def likelihood(nll: float) -> dict[str, float]:
    """The three forms MDLM reports: nats per token, bits per token, perplexity."""
    return {"nll": nll, "bpd": nll / LOG2, "ppl": math.exp(min(nll, 700.0))}


class Reported(torchmetrics.Metric):
    """A finished float64 value, in the form in which Lightning logs it without rounding."""

    full_state_update = False
    value: Tensor

    def __init__(self) -> None:
        super().__init__(sync_on_compute=False)  # every process has the same value
        self.add_state("value", torch.zeros((), dtype=torch.float64))

    def update(self, value: float) -> None:
        """Sets the value."""
        self.value.fill_(value)

    def compute(self) -> Tensor:
        """The value."""
        return self.value

"""Standard error of nats a token over a validation, with sequences as the independent unit."""

from __future__ import annotations

import math

import torch
from torch import Tensor


class Spread:
    """Sums of what the ratio estimator's error needs, over all processes.

    The estimate is R = sum of nats / sum of tokens; its error comes from the residuals
    nats - R tokens of the sequences. Stratified times make it slightly too large.
    """

    def __init__(self) -> None:
        self._sums: Tensor | None = None

    def reset(self) -> None:
        """Forgets everything."""
        self._sums = None

    def add(self, nats_B: Tensor, tokens_B: Tensor) -> None:
        """Adds sequences."""
        n, t = nats_B.double(), tokens_B.double()
        columns = (torch.ones_like(n), n, t, n * n, n * t, t * t)
        sums = torch.stack([column.sum() for column in columns])
        self._sums = sums if self._sums is None else self._sums + sums

    def standard_error(self) -> float | None:
        """Nats a token; None below two sequences (a collective call)."""
        if self._sums is None:
            return None
        sums = self._sums.clone()
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(sums)
        count, n, t, nn, nt, tt = sums.tolist()
        if count < 2 or t == 0:
            return None
        ratio = n / t
        residual = max(nn - 2 * ratio * nt + ratio * ratio * tt, 0.0)
        return math.sqrt(residual * count / (count - 1)) / t

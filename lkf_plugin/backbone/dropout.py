"""Dropout whose draw for a row does not depend on which rows are run.

Two-phase training runs the latent branch twice, first for every (sequence, component) pair, then
for some of them; both passes must drop the same activations. Given a ``RowDraw`` the mask is drawn
for all ``total`` rows and then picked, so that from the same generator state a row gets the same
mask in both.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class RowDraw(NamedTuple):
    """Which of ``total`` rows a batch holds; ``row_R`` None means all of them, in order."""

    total: int
    row_R: Tensor | None = None


def drop(x_RLD: Tensor, p: float, training: bool, draw: RowDraw | None) -> Tensor:
    """Dropout; without ``draw`` it is torch's own (and MDLM's, bit for bit)."""
    if draw is None or not training or p == 0.0:
        return F.dropout(x_RLD, p=p, training=training)
    keep = torch.empty(draw.total, *x_RLD.shape[1:], dtype=x_RLD.dtype, device=x_RLD.device)
    keep = keep.bernoulli_(1 - p)
    if draw.row_R is not None:
        keep = keep[draw.row_R]
    return x_RLD * keep / (1 - p)

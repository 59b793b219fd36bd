"""The plug-in entropy of a sample, and what a perfect sample of the same size would score.

The plug-in entropy never exceeds the log of the sample's size, so it falls short of the truth even
for perfect samples; comparing it with :func:`expected_plug_in_entropy` removes that bias.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def plug_in_entropy(ids: Tensor) -> float:
    """Entropy of the empirical distribution of ids, in nats (0 for an empty sample)."""
    if ids.numel() == 0:
        return 0.0
    share = torch.unique(ids, return_counts=True)[1].double() / ids.numel()
    return float(-(share * share.log()).sum()) + 0.0  # -0.0 reads badly in a report


def expected_plug_in_entropy(draws: int, cells: int) -> float:
    """Mean plug-in entropy of ``draws`` independent draws, uniform over ``cells`` cells, in nats.

    Exact: a cell's count c is binomial, and the entropy is ``log n - (cells / n) E[c log c]``.
    """
    if draws == 0 or cells == 1:
        return 0.0
    count = torch.arange(1, draws + 1, dtype=torch.float64)
    log_choose = math.lgamma(draws + 1) - torch.lgamma(count + 1) - torch.lgamma(draws - count + 1)
    log_pmf = log_choose - count * math.log(cells) + (draws - count) * math.log1p(-1.0 / cells)
    return math.log(draws) - cells / draws * float((log_pmf.exp() * count * count.log()).sum())

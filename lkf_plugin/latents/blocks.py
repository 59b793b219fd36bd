"""Positions in contiguous blocks, each with one latent.

A sequence of L positions has G = ceil(L / block_length) groups; the last one may be shorter. One
group is the whole sequence, which is LKF: its sums are the same bits as sums over the positions.

Shape legend: B sequences, M components, L positions, G groups, D width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from lkf_plugin.errors import UserError


@dataclass(frozen=True)
class Blocks:
    """How positions are grouped.

    Attributes:
        block_length: positions per group; None makes one group of them all.

    Raises:
        UserError: a length below one.
    """

    block_length: int | None

    def __post_init__(self) -> None:
        if self.block_length is not None and self.block_length < 1:
            raise UserError(f"model.block_length={self.block_length} must be at least 1.")

    def count(self, length: int) -> int:
        """G of a sequence of ``length`` positions."""
        return 1 if self.block_length is None else -(-length // self.block_length)

    def group_of(self, length: int, device: torch.device | None = None) -> Tensor:
        """The group of each position, int64 [L]: where its latent stands in ``z_BG``."""
        return torch.arange(length, device=device) // (self.block_length or length)

    def sums(self, logp_BML: Tensor) -> Tensor:
        """Sums of log P_i^k over each group, ell_BGM; positions that do not count hold 0."""
        if self.count(logp_BML.shape[-1]) == 1:
            return logp_BML.sum(-1)[:, None]
        if self.block_length == 1:
            return logp_BML.transpose(1, 2)
        return self._split(logp_BML).sum(-1).transpose(1, 2)

    def means(self, h_BLD: Tensor) -> Tensor:
        """Mean over the positions of each group, [B, G, D]."""
        if self.count(h_BLD.shape[1]) == 1:
            return h_BLD.mean(1, keepdim=True)
        if self.block_length == 1:
            return h_BLD
        sums_BGD = self._split(h_BLD.transpose(1, 2)).sum(-1).transpose(1, 2)
        size_G = torch.bincount(self.group_of(h_BLD.shape[1], h_BLD.device))
        return sums_BGD / size_G[:, None]

    def _split(self, x_BXL: Tensor) -> Tensor:
        """[B, X, G, block_length], zeros behind the last position."""
        assert self.block_length is not None
        return F.pad(x_BXL, (0, -x_BXL.shape[-1] % self.block_length)).unflatten(
            -1, (-1, self.block_length)
        )

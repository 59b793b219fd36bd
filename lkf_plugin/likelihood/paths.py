r"""When each position is revealed: the reveal pattern of a J-step sampler.

A mask is revealed in step j with the grid's chance, whatever its value, so that the pattern has one
law in model and data: position i gets step j with chance q_j = r_j prod_{h<j} (1 - r_h), which is
1 / J on the paper's grid r_j = 1 / (J - j).

One uniform per position decides for every J: the step is where it falls in the cumulative q. So
grids that refine one another have nested paths, and all models see the same ones; differences
between models, and between numbers of steps, are then precise.

Shape legend: B sequences, L positions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lkf_plugin.decode.noise import Stream, uniforms


def step_chances(reveal: Sequence[float]) -> list[float]:
    """q_j of reveal chances r_j; what would outlive the last step belongs to it."""
    left, chances = 1.0, []
    for chance in reveal[:-1]:
        chances.append(left * chance)
        left -= chances[-1]
    return [*chances, left]


def reveal_steps(u_BL: Tensor, reveal: Sequence[float]) -> Tensor:
    """Step of each position, int64 in [0, J), from its uniform."""
    ends = torch.tensor(step_chances(reveal), dtype=torch.float64, device=u_BL.device).cumsum(0)
    return torch.searchsorted(ends[:-1], u_BL, right=True)


def drawn_steps(seed_B: Tensor, path: int, length: int, reveal: Sequence[float]) -> Tensor:
    """The path of that number for each sequence's seed, [B, L]."""
    return reveal_steps(uniforms(seed_B, path, length, Stream.REVEAL), reveal)

"""DCD's mathematics: two noisy texts of one Gaussian latent, a step apart.

The latent w = a onehot(x0) + s noise (see ``duo_curriculum``) at two times t > s with *the same
noise* moves along a straight way, and so its argmax moves from one state of the discrete chain to
the other. The argmax needs no vector of size K: among the other ids the largest noise wins at any
time, so a position holds x0 where own noise + a / s is above that largest noise, and else the id
that has it.

Shape legend: B sequences, L positions, N = B L, K vocabulary.
Source: Sahoo et al. 2025 (The Diffusion Duality), discrete consistency distillation, and
s-sahoo/duo, algo.Distillation.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lkf_plugin.methods.duo_latent import largest_gaussians
from lkf_plugin.methods.sdtt_math import TEACHER_STEPS


class Noise(NamedTuple):
    """What a latent's argmax depends on.

    Attributes:
        own: noise of the clean token's column, float64, [B, L].
        largest: largest noise of the other columns.
        other: the id that has it.
    """

    own: Tensor
    largest: Tensor
    other: Tensor


def draw_noise(x0_BL: Tensor, vocab_size: int) -> Noise:
    """Noise of a batch, of the law that K standard Gaussians a position have."""
    count, device = x0_BL.numel(), x0_BL.device
    own_N = torch.randn(count, dtype=torch.float64, device=device)
    largest_N = largest_gaussians(count, vocab_size - 1, 1, device).squeeze(-1)
    rank_N = torch.randint(vocab_size - 1, (count,), device=device)
    other_N = rank_N + (rank_N >= x0_BL.flatten())
    return Noise(*(part_N.view(x0_BL.shape) for part_N in (own_N, largest_N, other_N)))


def tokens_at(x0_BL: Tensor, gamma_B: Tensor, noise: Noise) -> Tensor:
    """Argmax of the latent at log noise-to-signal ``gamma``: a / s = exp(-gamma / 2)."""
    ratio_B1 = torch.exp(-gamma_B.double() / 2)[:, None]
    return torch.where(noise.own + ratio_B1 >= noise.largest, x0_BL, noise.other)


def gap(base_steps: int, number: int) -> float:
    """dt of a round, from 0: one of ``base_steps`` steps, doubled each time."""
    return TEACHER_STEPS**number / base_steps


def pair_of_times(t_B: Tensor, dt: float) -> tuple[Tensor, Tensor]:
    """(t, s): drawn times moved up by dt as far as 1, and dt below.

    Source: DUO, Distillation.nll.
    """
    later_B = (t_B + dt).clamp(0, 1)
    return later_B, later_B - dt

"""DUO's Gaussian curriculum: early in training the network reads soft tokens.

A Gaussian latent w = a onehot(x0) + s noise, with a^2 = sigmoid(-gamma) and s^2 = sigmoid(gamma),
has argmax x0 with a chance that depends on gamma alone, so its argmax is uniform-state diffusion.
The network reads softmax(w / tau) instead of the argmax; as tau falls the two become one.

Shape legend: B sequences, Z quadrature points.
Source: Sahoo et al. 2025 (The Diffusion Duality), Eq. 10 (the operator T) and its section on
curriculum learning.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

POINTS = 1201  # trapezoid on 24 standard deviations: spectrally exact for this integrand
HALF_WIDTH = 12.0
HARD_TAU_LOG10 = -10.0


def argmax_signal(gamma_B: Tensor, vocab_size: int) -> tuple[Tensor, Tensor]:
    """(alpha, d alpha / d gamma) of the argmax of the latent, float64 [B].

    P(argmax = x0) = integral of phi(z - m) Phi(z)^(K-1) with m = exp(-gamma / 2), and
    alpha = (K P - 1) / (K - 1).
    """
    gamma_B = gamma_B.double()
    m_B1 = torch.exp(-gamma_B / 2)[:, None]
    steps_Z = torch.linspace(-HALF_WIDTH, HALF_WIDTH, POINTS, dtype=torch.float64)
    y_Z = steps_Z.to(gamma_B.device)
    log_wins_BZ = (vocab_size - 1) * torch.special.log_ndtr(m_B1 + y_Z)
    density_BZ = torch.exp(log_wins_BZ - y_Z**2 / 2 - math.log(2 * math.pi) / 2)
    width = 2 * HALF_WIDTH / (POINTS - 1)  # the ends are zero, so plain sums are trapezoids
    wins_B = density_BZ.sum(-1) * width
    dwins_dm_B = (density_BZ * y_Z).sum(-1) * width
    scale = vocab_size / (vocab_size - 1)
    alpha_B = scale * wins_B - 1 / (vocab_size - 1)
    return alpha_B, -scale * dwins_dm_B * m_B1[:, 0] / 2


@dataclass(frozen=True)
class Curriculum:
    """When the latent is used, how soft it is, and how noisy.

    Attributes:
        start, end: steps between which log10 tau goes from ``tau_log10_start`` to
            ``tau_log10_end``; from ``end`` on training is plain.
        gamma_min, gamma_max: noise of the latent at time 0 and 1.
    """

    start: int
    end: int
    tau_log10_start: float
    tau_log10_end: float
    gamma_min: float
    gamma_max: float

    def active(self, step: int) -> bool:
        """Whether optimizer step ``step`` (from 0) reads soft tokens."""
        return step < self.end

    def tau_log10(self, step: int) -> float:
        """log10 of the temperature at a step."""
        if step < self.start:
            return self.tau_log10_start
        if step >= self.end:
            return HARD_TAU_LOG10
        done = (step - self.start) / (self.end - self.start)
        return self.tau_log10_start + done * (self.tau_log10_end - self.tau_log10_start)

    def gamma(self, t_B: Tensor) -> Tensor:
        """Noise at time ``t``, linear."""
        return self.gamma_min + t_B * (self.gamma_max - self.gamma_min)

    def signal(self, t_B: Tensor, vocab_size: int) -> tuple[Tensor, Tensor, Tensor]:
        """(gamma, alpha, d alpha / dt), float64 [B]."""
        gamma_B = self.gamma(t_B.double())
        alpha_B, slope_B = argmax_signal(gamma_B, vocab_size)
        return gamma_B, alpha_B, slope_B * (self.gamma_max - self.gamma_min)


def gamma_of_signal(alpha: float, vocab_size: int) -> float:
    """gamma at which the argmax keeps signal ``alpha``, by bisection (alpha falls with gamma)."""
    low, high = -20.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        kept = argmax_signal(torch.tensor([middle]), vocab_size)[0].item()
        low, high = (middle, high) if kept > alpha else (low, middle)
    return (low + high) / 2

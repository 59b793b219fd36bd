"""Masking and its clocks.

Two clocks meet here and nowhere else. MDLM's ``tau`` runs from 0 (data) to 1 (all masked) and
reaches the network as ``sigma``; the paper's ``t`` runs from 0 (all masked) to 1 (data) and is the
fraction kept, kappa_t = t. They are tied by ``t = exp(-sigma)``.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

NOISE_EPS = 1e-3  # MDLM's log-linear schedule keeps at least this fraction at tau = 1


class LogLinearNoise(nn.Module):
    """sigma(tau) = -log(1 - (1 - eps) tau), so that tokens are masked with chance (1 - eps) tau.

    Source: MDLM, noise_schedule.LogLinearNoise (eps is fixed there too; its YAML's sigma bounds
    are not read).
    """

    sigma_max: Tensor
    sigma_min: Tensor

    def __init__(self, eps: float = NOISE_EPS) -> None:
        super().__init__()
        self.eps = eps
        self.sigma_max = self.total_noise(torch.tensor(1.0))
        self.sigma_min = eps + self.total_noise(torch.tensor(0.0))

    def total_noise(self, t: Tensor) -> Tensor:
        """sigma at MDLM time ``t``."""
        return -torch.log1p(-(1 - self.eps) * t)

    def rate_noise(self, t: Tensor) -> Tensor:
        """d sigma / dt at MDLM time ``t``."""
        return (1 - self.eps) / (1 - (1 - self.eps) * t)

    def forward(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """(sigma, d sigma / dt)."""
        return self.total_noise(t), self.rate_noise(t)

    def log_move_chance_bounds(self) -> tuple[Tensor, Tensor]:
        """log(1 - exp(-sigma)) at the two ends: (f_0, f_T)."""
        f_0 = torch.log1p(-torch.exp(-self.sigma_min))
        f_T = torch.log1p(-torch.exp(-self.sigma_max))
        return f_0, f_T

    def importance_sampling_transformation(self, t: Tensor) -> Tensor:
        """Maps uniform ``t`` to times whose log move chance is uniform (MDLM, same name)."""
        f_0, f_T = self.log_move_chance_bounds()
        sigma = -torch.log1p(-torch.exp(t * f_T + (1 - t) * f_0))
        return -torch.expm1(-sigma) / (1 - self.eps)


def times_from_uniforms(u_B: Tensor, antithetic: bool, sampling_eps: float) -> Tensor:
    """MDLM times in [sampling_eps, 1] from uniforms, shape [B].

    ``antithetic`` is MDLM's word for stratified: row b falls into the b-th of B equal slices.
    Source: MDLM, Diffusion._sample_t.
    """
    if antithetic:
        n = u_B.shape[0]
        slices = torch.arange(n, device=u_B.device) / n
        u_B = (u_B / n + slices) % 1
    return (1 - sampling_eps) * u_B + sampling_eps


def draw_times(
    n: int, device: torch.device | str, antithetic: bool = True, sampling_eps: float = 1e-3
) -> Tensor:
    """``n`` MDLM times from torch's global generator (one ``rand`` call, as MDLM draws)."""
    return times_from_uniforms(torch.rand(n, device=device), antithetic, sampling_eps)


def move_chance_from_sigma(sigma: Tensor) -> Tensor:
    """Chance that a token is masked at noise ``sigma``."""
    return 1 - torch.exp(-sigma)


def nelbo_weight(sigma: Tensor, dsigma: Tensor) -> Tensor:
    """omega = dsigma / expm1(sigma) = 1 / tau, in MDLM's operation order (same bits)."""
    return dsigma / torch.expm1(sigma)


def mask_tokens(x: Tensor, move_chance: Tensor, mask_index: int) -> Tensor:
    """Masks each token with chance ``move_chance`` (broadcast); one ``rand`` call of x's shape.

    Source: MDLM, Diffusion.q_xt.
    """
    moved = torch.rand(*x.shape, device=x.device) < move_chance
    return torch.where(moved, mask_index, x)


# --- two times, in the paper's clock -----------------------------------------------------------


def draw_two_times(n: int, device: torch.device | str, t_max: float) -> tuple[Tensor, Tensor]:
    """t ~ U[0, t_max] and s ~ U[t, 1] in the paper's clock, each [B].

    The convention that fits the paper's published likelihoods best has ``t_max`` = 0.95.
    """
    t = t_max * torch.rand(n, device=device)
    s = t + (1 - t) * torch.rand(n, device=device)
    return t, s


def reveal_chance(t: Tensor, s: Tensor) -> Tensor:
    """p_rev = (kappa_s - kappa_t) / (1 - kappa_t) with kappa_t = t (paper, Masking path)."""
    return (s - t) / (1 - t)


def reveal_tokens(xt: Tensor, x1: Tensor, p_rev: Tensor, mask_index: int) -> Tensor:
    """x_s from x_t: each mask turns into its clean token with chance ``p_rev`` (broadcast)."""
    revealed = torch.rand(*xt.shape, device=xt.device) < p_rev
    return torch.where((xt == mask_index) & revealed, x1, xt)


def sigma_from_kept(t: Tensor) -> Tensor:
    """Noise at which a fraction ``t`` is kept; infinite at t = 0."""
    return -torch.log(t)


# --- sampling grids ----------------------------------------------------------------------------


def sampling_times(num_steps: int, eps: float = 1e-5) -> list[float]:
    """MDLM times 1 = tau_0 > ... > tau_J = eps of a J-step sampler (MDLM, Diffusion._sample).

    ``eps`` = 0 is the paper's grid t_j = j / J seen in MDLM's clock.
    """
    return [1.0 - (1.0 - eps) * j / num_steps for j in range(num_steps + 1)]


def reveal_probabilities(num_steps: int, eps: float = 1e-5) -> list[float]:
    """Chance that a mask is revealed in step j: (tau_j - tau_{j+1}) / tau_j.

    With ``eps`` = 0 this is the paper's 1 / (J - j); with MDLM's eps a mask outlives the last
    step with chance ``eps`` and is filled greedily.
    """
    tau = sampling_times(num_steps, eps)
    return [(tau[j] - tau[j + 1]) / tau[j] for j in range(num_steps)]

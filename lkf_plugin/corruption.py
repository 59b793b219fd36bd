"""Masking and its clocks.

Two clocks meet here and nowhere else. MDLM's ``tau`` runs from 0 (data) to 1 (all masked) and
reaches the network as ``sigma``; the paper's ``t`` runs from 0 (all masked) to 1 (data) and is the
fraction kept, kappa_t = t. They are tied by ``t = exp(-sigma)``.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

NOISE_EPS = 1e-3  # MDLM's log-linear schedule keeps at least this fraction at tau = 1


# --- the noise level -----------------------------------------------------------------------------
#
# Everything is a function of sigma and of the chance 1 - exp(-sigma) that a token is masked. Where
# several forms are equal on paper, the one that rounds as MDLM's noise_schedule.py does is taken.


def sigma_from_move_chance(chance: Tensor) -> Tensor:
    """sigma at which a token is masked with ``chance``; infinite at 1."""
    return -torch.log1p(-chance)


def move_chance_from_sigma(sigma: Tensor) -> Tensor:
    """Chance that a token is masked at noise ``sigma``."""
    return 1 - torch.exp(-sigma)


def log_move_chance(sigma: Tensor) -> Tensor:
    """Logarithm of that chance, exact also where the chance is next to 1."""
    return torch.log1p(-torch.exp(-sigma))


class LogLinearNoise(nn.Module):
    """The schedule whose chance of a mask grows linearly with time: (1 - eps) tau.

    Calling it with MDLM times gives (sigma, d sigma / d tau). ``sigma_min`` and ``sigma_max`` are
    the ends of the range over which importance sampling spreads its times, 0-dim.

    Args:
        eps: fraction kept at tau = 1. MDLM fixes it at ``NOISE_EPS``, and does not read the sigma
            bounds of its YAML for this schedule.
    """

    def __init__(self, eps: float = NOISE_EPS) -> None:
        super().__init__()
        self.slope = 1 - eps  # of the chance of a mask, in tau
        first, last = (self(torch.tensor(time))[0] for time in (0.0, 1.0))
        self.sigma_min, self.sigma_max = first + eps, last  # at 0 the log chance has no bound

    def forward(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """(sigma, d sigma / dt) at MDLM times ``t`` of any shape."""
        chance = self.slope * t
        return sigma_from_move_chance(chance), self.slope / (1 - chance)

    def importance_times(self, u: Tensor) -> Tensor:
        """Times whose log move chance is spread as ``u`` in [0, 1]: from smallest to largest."""
        low, high = log_move_chance(self.sigma_min), log_move_chance(self.sigma_max)
        sigma = sigma_from_move_chance(torch.exp(u * high + (1 - u) * low))
        return -torch.expm1(-sigma) / self.slope


def nelbo_weight(sigma: Tensor, dsigma: Tensor) -> Tensor:
    """omega = dsigma / expm1(sigma) = 1 / tau, in MDLM's operation order (same bits)."""
    return dsigma / torch.expm1(sigma)


# --- times and masks -----------------------------------------------------------------------------


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

"""The curriculum's Gaussian latent as soft tokens, with or without its long tail.

At a small temperature softmax(w / tau) has a handful of entries that are not zero. ``top_latent``
draws just those, exactly: the k largest of K - 1 Gaussians are order statistics of uniforms, and
who holds them is a random choice of ids. Nothing of size K is made.

Shape legend: N rows = (sequence, position) pairs, K vocabulary, C columns of a soft token.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class SoftTokens(NamedTuple):
    """Mixtures of embeddings, and the hard token of each.

    Attributes:
        id_NC: columns, or None where the columns are all K ids in order.
        weight_NC: sums to one (up to a cut tail).
        hard_N: argmax of the latent.
    """

    id_NC: Tensor | None
    weight_NC: Tensor
    hard_N: Tensor


def soften(w_NC: Tensor, tau: float) -> Tensor:
    """softmax(w / tau)."""
    return torch.softmax(w_NC / tau, dim=-1)


def gaussian_latent(x0_N: Tensor, gamma_N: Tensor, noise_NK: Tensor) -> Tensor:
    """w = a onehot(x0) + s noise, [N, K]."""
    gamma_N1 = gamma_N[..., None].to(noise_NK)
    w_NK = torch.sigmoid(gamma_N1).sqrt() * noise_NK
    signal_N1 = torch.sigmoid(-gamma_N1).sqrt().expand(*x0_N.shape, 1)
    return w_NK.scatter_add(-1, x0_N[..., None], signal_N1)


def dense_latent(x0_N: Tensor, gamma_N: Tensor, vocab_size: int, tau: float) -> SoftTokens:
    """Every column; [N, K] twice."""
    noise_NK = torch.randn(*x0_N.shape, vocab_size, device=x0_N.device)
    w_NK = gaussian_latent(x0_N, gamma_N, noise_NK)
    return SoftTokens(None, soften(w_NK, tau), w_NK.argmax(-1))


def top_latent(
    x0_N: Tensor, gamma_N: Tensor, vocab_size: int, tau: float, columns: int
) -> SoftTokens:
    """The clean token's column and the ``columns`` largest of the others, [N, 1 + columns]."""
    rows, device = x0_N.shape[0], x0_N.device
    gamma_N = gamma_N.double()
    noise_N, signal_N = torch.sigmoid(gamma_N).sqrt(), torch.sigmoid(-gamma_N).sqrt()
    own_N = signal_N + noise_N * torch.randn(rows, dtype=torch.float64, device=device)
    others_NC = noise_N[:, None] * largest_gaussians(rows, vocab_size - 1, columns, device)
    rank_NC = distinct_integers(rows, vocab_size - 1, columns, device)
    other_NC = rank_NC + (rank_NC >= x0_N[:, None])
    id_NC = torch.cat((x0_N[:, None], other_NC), dim=-1)
    w_NC = torch.cat((own_N[:, None], others_NC), dim=-1)
    hard_N = id_NC.gather(-1, w_NC.argmax(-1, keepdim=True)).squeeze(-1)
    return SoftTokens(id_NC, soften(w_NC, tau).float(), hard_N)


def largest_gaussians(rows: int, count: int, columns: int, device: torch.device) -> Tensor:
    """The ``columns`` largest of ``count`` standard Gaussians, falling, float64 [rows, columns].

    The largest of n uniforms is U^(1/n); given it, the next is the largest of n - 1 below it.
    """
    u_NC = torch.rand(rows, columns, dtype=torch.float64, device=device)
    left_C = count - torch.arange(columns, dtype=torch.float64, device=device)
    log_cdf_NC = (torch.log(u_NC.clamp_min(1e-300)) / left_C).cumsum(-1)
    return -torch.special.ndtri(-torch.expm1(log_cdf_NC))


def distinct_integers(rows: int, count: int, columns: int, device: torch.device) -> Tensor:
    """Distinct integers below ``count``, uniform and in random order, int64 [rows, columns].

    Rows with a repetition are drawn again, which leaves the law uniform on rows without one.
    """
    assert columns * columns <= 4 * count, "too many columns: repetitions would never end"
    drawn_NC = torch.randint(count, (rows, columns), device=device)
    while True:
        ordered_NC = drawn_NC.sort(-1).values
        again_N = (ordered_NC[:, 1:] == ordered_NC[:, :-1]).any(-1).nonzero().squeeze(-1)
        if again_N.numel() == 0:
            return drawn_NC
        drawn_NC[again_N] = torch.randint(count, (again_N.numel(), columns), device=device)

"""Independent references for the closed forms: brute-force transitions and EM."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

MixtureFit = tuple[float, Tensor, Tensor]


@pytest.fixture
def fit_mixture() -> Callable[..., MixtureFit]:
    """EM for a mixture of M product distributions; the best of many restarts."""

    def fit(
        outcomes_NL: Tensor,
        prob_N: Tensor,
        components: int,
        restarts: int = 24,
        rounds: int = 400,
    ) -> MixtureFit:
        """Return the least cross-entropy (nats), the weights (M,) and the tables (M, L, A)."""
        generator = torch.Generator().manual_seed(7)
        alphabet = int(outcomes_NL.max()) + 1
        onehot_NLA = torch.nn.functional.one_hot(outcomes_NL, alphabet).double()
        n, length, _ = onehot_NLA.shape
        flat_NF = onehot_NLA.reshape(n, -1)
        noise = torch.rand(restarts, n, components, generator=generator, dtype=torch.float64)
        # From nearly hard to soft assignments: each kind alone gets stuck on some of the problems.
        sharpness = torch.linspace(1.0, 40.0, restarts, dtype=torch.float64)
        post_RNM = (sharpness[:, None, None] * noise).softmax(-1)
        for _ in range(rounds):
            mass_RNM = post_RNM * prob_N[:, None]
            weight_RM = mass_RNM.sum(1).clamp_min(1e-300)
            table_RMF = torch.einsum("rnm,nf->rmf", mass_RNM, flat_NF) / weight_RM[..., None]
            log_RNM = torch.einsum("rmf,nf->rnm", table_RMF.clamp_min(1e-300).log(), flat_NF)
            log_RNM = log_RNM + weight_RM.log()[:, None, :]
            post_RNM = log_RNM.softmax(-1)
        loss_R = -(log_RNM.logsumexp(-1) * prob_N).sum(-1)
        best = int(loss_R.argmin())
        tables = table_RMF[best].reshape(components, length, alphabet)
        return float(loss_R[best]), weight_RM[best], tables

    return fit


@pytest.fixture
def brute_transition() -> Callable[..., dict[tuple[int, ...], dict[tuple[int, ...], float]]]:
    """The transition by Bayes' rule from the joint law of (x_0, x_s, x_t), no formula used."""

    def brute(
        support: list[tuple[int, ...]], mask_id: int, t: float, s: float
    ) -> dict[tuple[int, ...], dict[tuple[int, ...], float]]:
        """Return q(x_s | x_t) as ``table[x_t][x_s]`` for clean strings uniform on ``support``."""
        joint: dict[tuple[int, ...], dict[tuple[int, ...], float]] = {}
        for clean in support:
            # A position is visible at s with chance s, and then still visible at t with t / s.
            for state in itertools.product(range(3), repeat=len(clean)):
                chance = 1.0 / len(support)
                for kind in state:
                    chance *= (1 - s, s - t, t)[kind]
                if chance == 0.0:
                    continue
                at_s = tuple(v if k > 0 else mask_id for v, k in zip(clean, state, strict=True))
                at_t = tuple(v if k > 1 else mask_id for v, k in zip(clean, state, strict=True))
                row = joint.setdefault(at_t, {})
                row[at_s] = row.get(at_s, 0.0) + chance
        return {
            at_t: {at_s: chance / sum(row.values()) for at_s, chance in row.items()}
            for at_t, row in joint.items()
        }

    return brute


@pytest.fixture
def average_over_times() -> Callable[..., float]:
    """Gauss-Legendre average of f(t, s) over t in [low, high] and s in [first(t), last(t)]."""

    def average(
        f: Callable[[Tensor, Tensor], Tensor],
        t_low: Callable[[Tensor], Tensor],
        t_high: Callable[[Tensor], Tensor],
        outer: str = "t",
        nodes: int = 80,
        cap: float = 1.0,
    ) -> float:
        """Draw the outer time from U[0, cap], the other one from U[t_low, t_high] given it."""
        # Eigenvalues of the Jacobi matrix are the nodes (Golub and Welsch).
        k = torch.arange(1, nodes, dtype=torch.float64)
        beta = k / torch.sqrt(4 * k**2 - 1)
        value, vector = torch.linalg.eigh(torch.diag(beta, 1) + torch.diag(beta, -1))
        unit, weight = (value + 1) / 2, vector[0] ** 2
        first = (cap * unit)[:, None]
        low, high = t_low(first), t_high(first)
        second = low + (high - low) * unit[None, :]
        first = first.expand_as(second)
        t, s = (first, second) if outer == "t" else (second, first)
        return float((weight[:, None] * weight[None, :] * f(t, s)).sum())

    return average

"""Information and total correlation of one mixture step at one state.

The input is the step itself: ``logw_M`` and the components' log-probabilities ``logp_MNV`` at the
N masked positions over V outcomes ([MASK] counts as an outcome where the step may leave it). So
the estimators run on any model that gives these two, trained on anything.

Shape legend: M components, N positions, V outcomes, S samples. Unit: nats.
Source: paper, Prop. tc; TC = sum_i I(k; X^i) - I(k; X), where the first sum is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lkf_plugin.kernel import entropy
from lkf_plugin.records.estimate import Estimate

MAX_OUTCOMES = 1_000_000


@dataclass(frozen=True)
class StepInformation:
    """What one step carries.

    Attributes:
        information: I(k; X_s | x_t).
        total_correlation: TC(X_s | x_t).
        prior_entropy: H(k | x_t), the ceiling of the information.
        positions: N, the masked positions.
        components: M.
    """

    information: Estimate
    total_correlation: Estimate
    prior_entropy: float
    positions: int
    components: int

    @property
    def information_ceiling(self) -> float:
        """log M."""
        return math.log(self.components)

    @property
    def total_correlation_ceiling(self) -> float:
        """(N - 1) log M."""
        return max(self.positions - 1, 0) * math.log(self.components)


def marginal_information_sum(logw_M: Tensor, logp_MNV: Tensor) -> Tensor:
    """sum_i I(k; X^i), exact: entropies of the marginals less those of the components."""
    marginal_NV = torch.logsumexp(logw_M[:, None, None] + logp_MNV, dim=0)
    within_N = (logw_M.exp()[:, None] * entropy(logp_MNV)).sum(0)
    return (entropy(marginal_NV) - within_N).sum()


def enumerable(outcomes: int, positions: int) -> bool:
    """Whether all V^N next states can be listed."""
    return positions * math.log(outcomes) <= math.log(MAX_OUTCOMES)


def information_exact(logw_M: Tensor, logp_MNV: Tensor) -> Tensor:
    """I(k; X) by listing every outcome; needs ``enumerable``."""
    M, N, V = logp_MNV.shape
    assert enumerable(V, N), f"{V}^{N} outcomes are too many to list"
    joint_MX = torch.zeros(M, 1, dtype=logp_MNV.dtype, device=logp_MNV.device)
    for i in range(N):
        joint_MX = (joint_MX[:, :, None] + logp_MNV[:, i, None, :]).flatten(1)
    psi_X = torch.logsumexp(logw_M[:, None] + joint_MX, dim=0)
    p_MX = joint_MX.exp()
    ratio_MX = torch.where(p_MX > 0, joint_MX - psi_X, torch.zeros_like(joint_MX))
    return (logw_M.exp()[:, None] * p_MX * ratio_MX).sum()


def sample_step(
    logw_M: Tensor, logp_MNV: Tensor, num_samples: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draws k ~ w and X ~ P^k: (component_S, outcome_SN)."""
    component_S = torch.multinomial(logw_M.exp(), num_samples, True, generator=generator)
    prob_MNV = logp_MNV.exp()
    outcome_SN = torch.empty(num_samples, logp_MNV.shape[1], dtype=torch.int64)
    for k in component_S.unique().tolist():
        rows = (component_S == k).nonzero().squeeze(-1)
        draws_NS = torch.multinomial(prob_MNV[k], rows.numel(), True, generator=generator)
        outcome_SN[rows] = draws_NS.T
    return component_S, outcome_SN


def posterior_divergence(logw_M: Tensor, logp_MNV: Tensor, outcome_SN: Tensor) -> Tensor:
    """KL(p(k | x) || w) of given outcomes, [S]; its mean under x ~ Psi is I(k; X)."""
    index = outcome_SN.T[None].expand(logw_M.shape[0], -1, -1)
    ell_SM = logp_MNV.gather(-1, index).sum(1).T
    log_post_SM = torch.log_softmax(logw_M + ell_SM, dim=-1)
    post_SM = log_post_SM.exp()
    terms = torch.where(post_SM > 0, log_post_SM - logw_M, torch.zeros_like(post_SM))
    return (post_SM * terms).sum(-1)


def information_monte_carlo(
    logw_M: Tensor, logp_MNV: Tensor, num_samples: int, generator: torch.Generator
) -> Estimate:
    """I(k; X) by the Rao-Blackwell estimator: unbiased, every term in [0, log(1 / min w)]."""
    _, outcome_SN = sample_step(logw_M, logp_MNV, num_samples, generator)
    terms_S = posterior_divergence(logw_M, logp_MNV, outcome_SN)
    return Estimate(terms_S.mean().item(), (terms_S.std() / math.sqrt(num_samples)).item())


def step_information(
    logw_M: Tensor,
    logp_MNV: Tensor,
    num_samples: int = 8192,
    generator: torch.Generator | None = None,
) -> StepInformation:
    """I and TC of one step: exact where the outcomes can be listed, Monte Carlo else.

    Args:
        logw_M: normalised log prior of the components.
        logp_MNV: normalised log-probabilities at the masked positions, float64.
        num_samples: S of the Monte Carlo estimate.
        generator: its randomness; seed 0 if not given.
    """
    logw_M, logp_MNV = logw_M.detach().double().cpu(), logp_MNV.detach().double().cpu()
    M, N, V = logp_MNV.shape
    if M == 1 or N == 0:
        information = Estimate(0.0, 0.0)
    elif enumerable(V, N):
        information = Estimate(information_exact(logw_M, logp_MNV).item(), 0.0)
    else:
        generator = generator or torch.Generator().manual_seed(0)
        information = information_monte_carlo(logw_M, logp_MNV, num_samples, generator)
    total = marginal_information_sum(logw_M, logp_MNV).item() if M > 1 and N > 0 else 0.0
    return StepInformation(
        information,
        Estimate(total - information.value, information.se),
        entropy(logw_M).item(),
        N,
        M,
    )

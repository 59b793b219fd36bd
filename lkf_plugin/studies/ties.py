"""Breaking ties: two components that own the same value while a third owns two.

That state is a local optimum of the likelihood (at M = V = 16 it costs 0.12 to 0.17 nats of captured
information a duplicate). Three remedies, all of them generic: none looks at the corpus' structure.

* ``anneal``: the router regulariser starts ten times as strong and falls to its value half-way.
* ``balance``: in the first half, responsibilities at the all-mask state are matched to equal
  shares over the last few hundred rows (Sinkhorn), so that duplicates run short of data.
* ``split``: split and merge. Every so often the two components whose merger costs least are
  merged, and the freed one becomes a perturbed copy of the component that gains most by a split;
  both are estimated on fresh draws, and nothing is done unless the gain exceeds the cost.

Source of the last: Ueda, Nakano, Ghahramani and Hinton, "SMEM algorithm for mixture models" (2000).
Shape legend: B rows, Q remembered rows, N fresh rows, M components, L positions, V outcomes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from lkf_plugin.backbone.latent import LatentKernelBackbone
from lkf_plugin.information.laws import StepLaw
from lkf_plugin.information.product_mixture import (
    ProductMixture,
    component_log_probs,
    fit,
    log_prob,
    random_mixture,
)

MEMORY = 256  # rows over which responsibilities are balanced
EVERY = 50  # steps between two tries at a split
LEAST_GAIN = 0.01  # nats; a split that promises less is left alone
PERTURBATION = 0.5  # of the freed embedding, in units of the embeddings' spread


def regularizer_scale(step: int, steps: int) -> float:
    """10 at the start, on a straight line to 1 at half the steps."""
    return 1.0 + 9.0 * max(0.0, 1.0 - 2.0 * step / steps)


def sinkhorn(score_QM: Tensor, rounds: int = 30) -> Tensor:
    """exp(score) scaled to rows that sum to one and columns that sum to Q / M (nearly).

    The responsibilities of a mixture whose weights are whatever makes each component's share of
    these rows the same.
    """
    potential_M = torch.zeros_like(score_QM[0])
    rows, columns = score_QM.shape
    share = torch.log(torch.tensor(rows / columns, dtype=score_QM.dtype))
    for _ in range(rounds):
        post_QM = torch.log_softmax(score_QM + potential_M, dim=-1)
        potential_M = potential_M + share - torch.logsumexp(post_QM, dim=0)
    return torch.softmax(score_QM + potential_M, dim=-1)


@dataclass
class Balance:
    """Balanced responsibilities with a memory of the latest all-mask rows."""

    memory_QM: Tensor | None = field(default=None)

    def responsibilities(self, score_BM: Tensor) -> Tensor:
        """Balanced gamma of these rows, detached; they join the memory."""
        score_BM = score_BM.detach()
        if self.memory_QM is None:
            joined_QM = score_BM
        else:
            joined_QM = torch.cat([self.memory_QM, score_BM])[-MEMORY:]
        self.memory_QM = joined_QM
        if len(joined_QM) < 4 * score_BM.shape[1]:
            return torch.softmax(score_BM, dim=-1)
        return sinkhorn(joined_QM)[-len(score_BM) :]


@dataclass(frozen=True)
class SplitPlan:
    """Merge ``freed`` into ``kept``, then make ``freed`` a copy of ``divided``.

    Attributes:
        gain: nats that the split should win less those that the merger costs.
    """

    kept: int
    freed: int
    divided: int
    gain: float


def merge_costs(logw_M: Tensor, ell_NM: Tensor) -> Tensor:
    """Log-likelihood lost if component b goes and a takes its weight, [M (a), M (b)]."""
    joint_NM = logw_M + ell_NM
    log_psi_N = torch.logsumexp(joint_NM, dim=-1)
    M = len(logw_M)
    costs = torch.full((M, M), torch.inf, dtype=ell_NM.dtype)
    for a in range(M):
        for b in range(M):
            if a != b:
                merged_NM = joint_NM.clone()
                merged_NM[:, b] = -torch.inf
                merged_NM[:, a] = torch.logaddexp(logw_M[a], logw_M[b]) + ell_NM[:, a]
                costs[a, b] = (log_psi_N - torch.logsumexp(merged_NM, dim=-1)).mean()
    return costs


def split_gain(
    x_NL: Tensor, share_N: Tensor, ell_N: Tensor, values: int, generator: torch.Generator
) -> float:
    """Log-likelihood that one component wins if it is replaced by two, on rows not fitted to.

    Args:
        x_NL: fresh rows; the first half is fitted, the second half judges.
        share_N: this component's responsibilities.
        ell_N: its log-probabilities.
        values: V.
        generator: start of the fit.
    """
    half = len(x_NL) // 2
    mass = share_N[:half].sum()
    if mass < 8:
        return 0.0
    start = random_mixture(2, x_NL.shape[1], values, generator, 0.5)
    pair = fit(x_NL[:half], share_N[:half] / mass, start, 20, smoothing=1e-3)
    won_N = log_prob(pair, x_NL[half:]) - ell_N[half:]
    return (share_N[half:] * won_N).mean().item()


def plan_split(mixture: ProductMixture, x_NL: Tensor, seed: int) -> SplitPlan | None:
    """The best merge and split of a mixture, or None if nothing would be won.

    Args:
        mixture: the components at the all-mask state.
        x_NL: fresh clean rows.
        seed: of the fits.
    """
    generator = torch.Generator().manual_seed(seed)
    ell_NM = component_log_probs(mixture.logq_MLV, x_NL)
    gamma_NM = torch.softmax(mixture.logw_M + ell_NM, dim=-1)
    costs = merge_costs(mixture.logw_M, ell_NM)
    values = mixture.logq_MLV.shape[-1]
    best: SplitPlan | None = None
    for c in range(len(mixture.logw_M)):
        gain = split_gain(x_NL, gamma_NM[:, c], ell_NM[:, c], values, generator)
        others = costs.clone()
        others[c], others[:, c] = torch.inf, torch.inf
        kept, freed = divmod(int(others.argmin()), len(mixture.logw_M))
        net = gain - others[kept, freed].item()
        if net > LEAST_GAIN and (best is None or net > best.gain):
            best = SplitPlan(kept, freed, c, net)
    return best


@torch.no_grad()
def apply_split(
    backbone: LatentKernelBackbone,
    optimizer: torch.optim.Optimizer,
    plan: SplitPlan,
    logw_M: Tensor,
    generator: torch.Generator,
) -> None:
    """Rewrites the freed component's embedding and its place in the router.

    Args:
        backbone, optimizer: changed in place; the freed row takes the divided row's moments.
        plan: what to do.
        logw_M: weights at the all-mask state.
        generator: of the perturbation.
    """
    freed, divided, kept = plan.freed, plan.divided, plan.kept
    embedding, out = backbone.latent_emb.weight, backbone.router.out
    noise = torch.randn(embedding.shape[1], generator=generator, dtype=embedding.dtype)
    spread = embedding.std()
    # the merged component inherits both weights; the halves share what their parent had
    out.bias[kept] += torch.logaddexp(logw_M[kept], logw_M[freed]).sub(logw_M[kept]).item()
    for rows in (embedding, out.weight, out.bias):
        rows[freed] = rows[divided]
        for value in optimizer.state.get(rows, {}).values():
            if value.shape == rows.shape:
                value[freed] = value[divided]
    out.bias[divided] -= torch.log(torch.tensor(2.0)).item()
    out.bias[freed] = out.bias[divided]
    embedding[freed] += PERTURBATION * spread * noise.to(embedding.device)


@torch.no_grad()
def first_step_mixture(backbone: LatentKernelBackbone, law: StepLaw, length: int) -> ProductMixture:
    """The components at the all-mask state for the step from 0 to 1."""
    x_1L = torch.full((1, length), backbone.mask_index)
    logw_BM, logp_BMLV = law(x_1L, 0.0, 1.0)
    return ProductMixture(logw_BM[0].double(), logp_BMLV[0].double())

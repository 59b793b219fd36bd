"""Breaking ties: two components that own the same value while a third owns two.

That state is a local optimum of the likelihood: at M = V = 16 a pair costs log(4) / 16 = 0.087 nats
of captured information. Three remedies, all generic: none looks at the corpus' structure.

* ``anneal``: the router regulariser starts ten times as strong and falls to its value half-way.
* ``balance``: in the first half, responsibilities at the all-mask state are matched to equal
  shares over the last few hundred rows (Sinkhorn), so that duplicates run short of data.
* ``split``: split and merge. Every so often the two components whose merger costs least are
  merged, and the freed one takes over half of the component that gains most by a split. Both are
  estimated on fresh draws, and nothing is done unless the gain exceeds the cost. A perturbed copy
  alone does not do: the copy follows its parent for hundreds of steps. So the two embeddings (and
  nothing else) are first fitted to the two halves that EM found.

Source of the last: Ueda, Nakano, Ghahramani and Hinton, "SMEM algorithm for mixture models" (2000).
Shape legend: B rows, Q remembered rows, N fresh rows, M components, L positions, V outcomes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from lkf_plugin.backbone.latent import LatentKernelBackbone
from lkf_plugin.corruption import sigma_from_kept
from lkf_plugin.information.laws import StepLaw
from lkf_plugin.information.product_mixture import (
    ProductMixture,
    component_log_probs,
    fit,
    log_prob,
    random_mixture,
)
from lkf_plugin.subs import NEG_INFINITY

MEMORY = 256  # rows over which responsibilities are balanced
EVERY = 50  # steps between two tries at a split
LEAST_ROWS = 8.0  # rows that a component must hold before its halves are fitted
LEAST_GAIN = 0.01  # nats; a split that promises less is left alone
FIT_STEPS, FIT_RATE = 60, 0.05  # Adam on the two embeddings of a split


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
    """Merge ``freed`` into ``kept``, then split ``divided`` into itself and ``freed``.

    Attributes:
        gain: nats that the split should win less those that the merger costs.
        halves: what the two should become, ``divided`` first.
    """

    kept: int
    freed: int
    divided: int
    gain: float
    halves: ProductMixture


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


def fit_halves(
    x_NL: Tensor, share_N: Tensor, ell_N: Tensor, values: int, generator: torch.Generator
) -> tuple[ProductMixture, float]:
    """Two components in place of one, and the log-likelihood won on rows not fitted to.

    Args:
        x_NL: fresh rows; the first half is fitted, the second half judges.
        share_N: this component's responsibilities.
        ell_N: its log-probabilities.
        values: V.
        generator: start of the fit.
    """
    half = len(x_NL) // 2
    mass = share_N[:half].sum()
    halves = random_mixture(2, x_NL.shape[1], values, generator, 0.5)
    if mass < LEAST_ROWS:
        return halves, 0.0
    halves = fit(x_NL[:half], share_N[:half] / mass, halves, 20, smoothing=1e-3)
    won_N = log_prob(halves, x_NL[half:]) - ell_N[half:]
    return halves, (share_N[half:] * won_N).mean().item()


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
        halves, gain = fit_halves(x_NL, gamma_NM[:, c], ell_NM[:, c], values, generator)
        others = costs.clone()
        others[c], others[:, c] = torch.inf, torch.inf
        kept, freed = divmod(int(others.argmin()), len(mixture.logw_M))
        net = gain - others[kept, freed].item()
        if net > LEAST_GAIN and (best is None or net > best.gain):
            best = SplitPlan(kept, freed, c, net, halves)
    return best


def apply_split(
    backbone: LatentKernelBackbone,
    optimizer: torch.optim.Optimizer,
    plan: SplitPlan,
    logw_M: Tensor,
    length: int,
) -> None:
    """Rewrites two embeddings and three places in the router.

    Args:
        backbone, optimizer: changed in place; the two embeddings lose their momentum.
        plan: what to do.
        logw_M: weights at the all-mask state.
        length: L.
    """
    freed, divided, kept = plan.freed, plan.divided, plan.kept
    embedding, out = backbone.latent_emb.weight, backbone.router.out
    pair = torch.tensor([divided, freed])
    with torch.no_grad():
        # the merged component inherits both weights; the halves share their parent's
        out.bias[kept] += (torch.logaddexp(logw_M[kept], logw_M[freed]) - logw_M[kept]).float()
        for rows in (embedding, out.weight, out.bias):
            rows[freed] = rows[divided]
            for value in optimizer.state.get(rows, {}).values():
                if value.shape == rows.shape:
                    value[freed] = value[divided]
        out.bias[pair] += plan.halves.logw_M.float()
        if embedding in optimizer.state:
            optimizer.state[embedding]["exp_avg"][pair] = 0.0
    _fit_embeddings(backbone, pair, plan.halves, length)


def _fit_embeddings(
    backbone: LatentKernelBackbone, pair: Tensor, halves: ProductMixture, length: int
) -> None:
    """Moves two embeddings until their components are the two halves at the all-mask state.

    Nothing else moves, so all other components stay what they are.
    """
    embedding = backbone.latent_emb.weight
    moving_2C = embedding.detach()[pair].clone()
    target_2LV = halves.logq_MLV.exp().float()
    x_1L = torch.full((1, length), backbone.mask_index)
    with torch.no_grad():
        state = backbone.encode(x_1L, sigma_from_kept(torch.zeros(1)), torch.ones(1))
    optimizer = torch.optim.Adam([moving_2C], lr=FIT_RATE)
    mask = torch.tensor([backbone.mask_index])
    for _ in range(FIT_STEPS):
        branch = backbone.branch(state, torch.zeros_like(pair), pair)
        logits_2LV = backbone.logits(branch).index_fill(-1, mask, NEG_INFINITY)
        loss = -(target_2LV * torch.log_softmax(logits_2LV, dim=-1)).sum()
        (gradient_MC,) = torch.autograd.grad(loss, embedding)
        moving_2C.grad = gradient_MC[pair]
        optimizer.step()
        with torch.no_grad():
            embedding[pair] = moving_2C


@torch.no_grad()
def first_step_mixture(backbone: LatentKernelBackbone, law: StepLaw, length: int) -> ProductMixture:
    """The components at the all-mask state for the step from 0 to 1."""
    x_1L = torch.full((1, length), backbone.mask_index)
    logw_BM, logp_BMLV = law(x_1L, 0.0, 1.0)
    return ProductMixture(logw_BM[0].double(), logp_BMLV[0].double())

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
  nothing else) are first fitted to the two halves that EM found. Two components that own different
  values merge into their average, to which the kept one's embedding is fitted too: without that,
  shares of 7, 6, 2 and 1 values are a trap at M = 4, since neither small one can stand for both.

Source of the last: Ueda, Nakano, Ghahramani and Hinton, "SMEM algorithm for mixture models" (2000).
Shape legend: B rows, Q remembered rows, N fresh rows, M components, L positions, V outcomes.
"""

from __future__ import annotations

import math
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
FITTED = 0.25  # share of the rows that halves are fitted to; the others judge
SURE = 2.0  # standard errors by which a gain must exceed that if an average is part of it
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
        merged_LV: log-probabilities that ``kept`` should take on, None to leave it as it is.
    """

    kept: int
    freed: int
    divided: int
    gain: float
    halves: ProductMixture
    merged_LV: Tensor | None = None


def merge_losses(mixture: ProductMixture, x_NL: Tensor) -> tuple[Tensor, Tensor]:
    """Log-likelihood of each row that a merger of two components loses, twice [M (a), M (b), N].

    In the first, component b goes and a takes its weight; in the second, a also becomes the average
    of the two. The diagonal is infinite.
    """
    logw_M, logq_MLV = mixture
    ell_NM = component_log_probs(logq_MLV, x_NL)
    joint_NM = logw_M + ell_NM
    log_psi_N = torch.logsumexp(joint_NM, dim=-1)
    M = len(logw_M)
    plain_MMN, averaged_MMN = torch.full((2, M, M, len(x_NL)), torch.inf, dtype=ell_NM.dtype)
    for a in range(M):
        for b in range(M):
            if a == b:
                continue
            logw, rest_NM = torch.logaddexp(logw_M[a], logw_M[b]), joint_NM.clone()
            rest_NM[:, b] = -torch.inf
            rest_NM[:, a] = logw + ell_NM[:, a]
            plain_MMN[a, b] = log_psi_N - torch.logsumexp(rest_NM, dim=-1)
            if a < b:
                average_1LV = average(mixture, a, b)[None]
                rest_NM[:, a] = logw + component_log_probs(average_1LV, x_NL)[:, 0]
                averaged_MMN[a, b] = log_psi_N - torch.logsumexp(rest_NM, dim=-1)
                averaged_MMN[b, a] = averaged_MMN[a, b]
    return plain_MMN, averaged_MMN


def average(mixture: ProductMixture, a: int, b: int) -> Tensor:
    """Log-probabilities [L, V] of the product distribution nearest to two components together."""
    pair = torch.tensor([a, b])
    share_2 = torch.log_softmax(mixture.logw_M[pair], dim=-1)
    return torch.logsumexp(share_2[:, None, None] + mixture.logq_MLV[pair], dim=0)


def fit_halves(
    x_NL: Tensor, share_N: Tensor, ell_N: Tensor, values: int, generator: torch.Generator
) -> tuple[ProductMixture, Tensor]:
    """Two components in place of one, and the log-likelihood that each row not fitted to wins.

    Args:
        x_NL: fresh rows; the first ``FITTED`` of them are fitted, the others judge.
        share_N: this component's responsibilities.
        ell_N: its log-probabilities.
        values: V.
        generator: start of the fit.
    """
    first = int(FITTED * len(x_NL))
    mass = share_N[:first].sum()
    halves = random_mixture(2, x_NL.shape[1], values, generator, 0.5)
    if mass < LEAST_ROWS:
        return halves, torch.zeros_like(share_N[first:])
    halves = fit(x_NL[:first], share_N[:first] / mass, halves, 20, smoothing=1e-3)
    won_N = log_prob(halves, x_NL[first:]) - ell_N[first:]
    return halves, share_N[first:] * won_N


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
    losses = merge_losses(mixture, x_NL)
    values, M = mixture.logq_MLV.shape[-1], len(mixture.logw_M)
    best: SplitPlan | None = None
    for c in range(M):
        halves, won_N = fit_halves(x_NL, gamma_NM[:, c], ell_NM[:, c], values, generator)
        for averaged, loss_MMN in enumerate(losses):
            costs = loss_MMN.mean(-1)
            costs[c], costs[:, c] = torch.inf, torch.inf
            kept, freed = divmod(int(costs.argmin()), M)
            gain = won_N.mean().item() - costs[kept, freed].item()
            # an average changes two components that may both be of use, so it has to be sure
            net_N = won_N - loss_MMN[kept, freed, -len(won_N) :]
            error = (net_N.std() / math.sqrt(len(net_N))).item() if averaged else 0.0
            least = max(LEAST_GAIN + SURE * error, best.gain + averaged * LEAST_GAIN if best else 0)
            if gain > least:
                merged_LV = average(mixture, kept, freed) if averaged else None
                best = SplitPlan(kept, freed, c, gain, halves, merged_LV)
    return best


def apply_split(
    backbone: LatentKernelBackbone,
    optimizer: torch.optim.Optimizer,
    plan: SplitPlan,
    logw_M: Tensor,
    length: int,
) -> None:
    """Rewrites two embeddings, or three, and three places in the router.

    Args:
        backbone, optimizer: changed in place; the rewritten embeddings lose their momentum.
        plan: what to do.
        logw_M: weights at the all-mask state.
        length: L.
    """
    freed, divided, kept = plan.freed, plan.divided, plan.kept
    moved, target_KLV = torch.tensor([divided, freed]), plan.halves.logq_MLV
    if plan.merged_LV is not None:
        moved = torch.tensor([divided, freed, kept])
        target_KLV = torch.cat([target_KLV, plan.merged_LV[None]])
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
            optimizer.state[embedding]["exp_avg"][moved] = 0.0
    _fit_embeddings(backbone, moved, target_KLV.exp().float(), length)


def _fit_embeddings(
    backbone: LatentKernelBackbone, moved: Tensor, target_KLV: Tensor, length: int
) -> None:
    """Moves a few embeddings until their components are these at the all-mask state.

    Nothing else moves, so all other components stay what they are.
    """
    embedding = backbone.latent_emb.weight
    moving_KC = embedding.detach()[moved].clone()
    x_1L = torch.full((1, length), backbone.mask_index)
    with torch.no_grad():
        state = backbone.encode(x_1L, sigma_from_kept(torch.zeros(1)), torch.ones(1))
    optimizer = torch.optim.Adam([moving_KC], lr=FIT_RATE)
    mask = torch.tensor([backbone.mask_index])
    for _ in range(FIT_STEPS):
        branch = backbone.branch(state, torch.zeros_like(moved), moved)
        logits_KLV = backbone.logits(branch).index_fill(-1, mask, NEG_INFINITY)
        loss = -(target_KLV * torch.log_softmax(logits_KLV, dim=-1)).sum()
        (gradient_MC,) = torch.autograd.grad(loss, embedding)
        moving_KC.grad = gradient_MC[moved]
        optimizer.step()
        with torch.no_grad():
            embedding[moved] = moving_KC


@torch.no_grad()
def first_step_mixture(backbone: LatentKernelBackbone, law: StepLaw, length: int) -> ProductMixture:
    """The components at the all-mask state for the step from 0 to 1."""
    x_1L = torch.full((1, length), backbone.mask_index)
    logw_BM, logp_BMLV = law(x_1L, 0.0, 1.0)
    return ProductMixture(logw_BM[0].double(), logp_BMLV[0].double())

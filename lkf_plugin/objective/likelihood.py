"""The clean-endpoint mixture objective (paper, Eq. x0loss) and the marginal NELBO (Prop. melbo).

Both are functions of the same component scores. The first is what trains the latent; at M > 1 it
is no bound on the likelihood and never becomes a perplexity. The second is MDLM's NELBO of the
marginal denoiser and compares across M.

Shape legend: B sequences, G groups, M components, L positions. Unit: nats.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from lkf_plugin.latents.structure import Structure, detached
from lkf_plugin.objective.components import ComponentScores


class MixtureObjective(NamedTuple):
    """The objective of a batch.

    Attributes:
        total: sum over the batch, weighted; a scalar with gradient.
        nll_B: the same of each sequence.
        gamma_BGM: responsibilities in each group, detached.
    """

    total: Tensor
    nll_B: Tensor
    gamma_BGM: Tensor


def mixture_objective(
    structure: Structure[Any], scores: ComponentScores, weight_B: Tensor, counted_BL: Tensor
) -> MixtureObjective:
    """-omega(tau) log Psi, summed over the batch.

    With one latent per sequence log Psi = logsumexp_k(log w_k + sum_{i counted} log P_i^k(x_i)).
    The position sum stands inside the logsumexp, so padding must be left out before it (through
    ``counted_BL``) or it would leak into the responsibilities. At M = 1 the products and sums are
    taken in MDLM's order, token by token, which makes the result the same bits as MDLM's loss.

    Args:
        structure: law of the latents.
        scores: its potentials and token log-probabilities [B, M, L].
        weight_B: omega(tau) of each sequence.
        counted_BL: bool; masked, non-padding positions.
    """
    potentials, logp_BML = scores
    logp_BML = torch.where(counted_BL[:, None], logp_BML, 0.0)
    if structure.components == 1:
        nll_BL = -logp_BML[:, 0] * weight_B[:, None]
        ones_B11 = torch.ones_like(logp_BML[:, :, :1]).detach()
        return MixtureObjective(nll_BL.sum(), nll_BL.sum(-1), ones_B11)
    ell_BGM = structure.blocks.sums(logp_BML)
    nll_B = -structure.log_psi(potentials, ell_BGM) * weight_B
    gamma_BGM = structure.responsibilities(detached(potentials), ell_BGM.detach())
    return MixtureObjective(nll_B.sum(), nll_B, gamma_BGM)


def marginal_nll(
    structure: Structure[Any], scores: ComponentScores, weight_B: Tensor, counted_BL: Tensor
) -> Tensor:
    """Weighted NELBO terms of the marginal denoiser at each position, shape [B, L].

    Their sum over the token count is MDLM's validation NLL (without the factor 1 - eps, as MDLM
    reports it).
    """
    logp_BL = structure.marginal_token_log_probs(*scores)
    return -torch.where(counted_BL, logp_BL, 0.0) * weight_B[:, None]

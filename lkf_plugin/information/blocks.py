"""Information and total correlation of one step whose blocks have latents of their own.

As ``information.step``, with z in place of k: TC = sum_i I(z_g(i); X^i) - I(z; X), where the first
sum is exact and I(z; X) is the mean of KL(q(z | x) || pi) over draws of the step, which a
structure gives in closed form.

Shape legend: M components, L positions, N masked positions, V outcomes, S samples. Unit: nats.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from lkf_plugin.information.step import StepInformation
from lkf_plugin.kernel import entropy
from lkf_plugin.latents.draws import inverse_cdf
from lkf_plugin.latents.structure import Structure, expected_log_prior, in_double
from lkf_plugin.records.estimate import Estimate


def block_information(
    structure: Structure[Any],
    potentials: Any,
    logp_MLV: Tensor,
    masked_L: Tensor,
    num_samples: int = 2048,
    generator: torch.Generator | None = None,
) -> StepInformation:
    """I and TC of one step from its potentials and component laws.

    Args:
        structure: law of the latents.
        potentials: of the one state, batch 1.
        logp_MLV: normalised log-probabilities; only masked positions are read.
        masked_L: bool.
        num_samples: S of the Monte Carlo estimate.
        generator: its randomness; seed 0 if not given.
    """
    generator = generator or torch.Generator().manual_seed(0)
    p = in_double(potentials._make(part.detach().cpu() for part in potentials))
    logp_MLV, masked_L = logp_MLV.detach().double().cpu(), masked_L.cpu()
    logp_MNV = logp_MLV[:, masked_L]
    length, N = len(masked_L), int(masked_L.sum())
    group_N = structure.blocks.group_of(length)[masked_L]
    many = p._make(part.expand(num_samples, *part.shape[1:]) for part in p)

    u_SU = torch.rand(
        num_samples, 1 + structure.blocks.count(length), generator=generator, dtype=torch.float64
    )
    component_SN = structure.draw(many, u_SU)[:, group_N]
    u_SN = torch.rand(num_samples, N, generator=generator, dtype=torch.float64)
    ell_SML = torch.zeros(num_samples, structure.components, length, dtype=torch.float64)
    for n, i in enumerate(masked_L.nonzero().squeeze(-1).tolist()):
        x_S = inverse_cdf(logp_MNV[component_SN[:, n], n].exp(), u_SN[:, n])
        ell_SML[:, :, i] = logp_MNV[:, n, x_S].T
    given = structure.condition(many, structure.blocks.sums(ell_SML))
    counts = structure.counts(given)
    terms_S = expected_log_prior(given, counts) - expected_log_prior(many, counts)
    error = (terms_S.std() / math.sqrt(num_samples)).item()

    logpi_MN = structure.position_weights(p, length)[0].expand(-1, length)[:, masked_L]
    marginal_NV = torch.logsumexp(logpi_MN[..., None] + logp_MNV, dim=0)
    within_N = (logpi_MN.exp() * entropy(logp_MNV)).sum(0)
    total = (entropy(marginal_NV) - within_N).sum().item()
    information = Estimate(terms_S.mean().item(), error)
    return StepInformation(
        information,
        Estimate(total - information.value, error),
        structure.entropy(p).item(),
        N,
        structure.components,
    )

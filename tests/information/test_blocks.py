"""Information of steps with block latents, against enumeration and against one latent."""

from __future__ import annotations

import pytest
import torch

from lkf_plugin.information.blocks import block_information
from lkf_plugin.information.product_mixture import all_strings
from lkf_plugin.information.step import step_information
from lkf_plugin.kernel import entropy
from lkf_plugin.latents.sequence import Sequence, SequencePotentials
from tests.latents.enumeration import (
    CASES,
    L,
    all_latents,
    log_prior,
    random_components,
    random_potentials,
    row,
    token_scores,
)


@pytest.mark.parametrize("structure", CASES.values(), ids=CASES.keys())
def test_against_enumeration(structure):
    p, logp_BMLV = random_potentials(structure, 1), random_components(structure, 1)
    masked_L = torch.ones(L, dtype=torch.bool)
    found = block_information(structure, p, logp_BMLV[0], masked_L, 20_000)
    strings_XL = all_strings(L, logp_BMLV.shape[-1])
    logp_XML = token_scores(logp_BMLV, strings_XL)[0]
    many = p._make(part.expand(len(strings_XL), *part.shape[1:]) for part in p)
    log_psi_X = structure.log_psi(many, structure.blocks.sums(logp_XML))
    z_ZG = all_latents(structure)
    log_pi_Z = log_prior(structure, row(p, 0), z_ZG).flatten()
    group_L = structure.blocks.group_of(L)
    within_Z = entropy(logp_BMLV[0])[z_ZG[:, group_L], torch.arange(L)].sum(-1)
    exact = -(log_psi_X.exp() * log_psi_X).sum() - (log_pi_Z.exp() * within_Z).sum()
    marginal = structure.marginal_log_probs(p, logp_BMLV)[0]
    correlation = entropy(marginal).sum() + (log_psi_X.exp() * log_psi_X).sum()
    error = found.information.se
    assert abs(found.information.value - exact.item()) < 4 * error + 1e-9
    assert abs(found.total_correlation.value - correlation.item()) < 4 * error + 1e-9
    assert found.information.value <= found.prior_entropy + 4 * error


def test_one_latent_is_the_estimator_of_one_latent():
    torch.manual_seed(0)
    logw_M = torch.log_softmax(torch.randn(3).double(), -1)
    logp_MLV = torch.log_softmax(2 * torch.randn(3, 5, 4).double(), -1)
    masked_L = torch.tensor([True, False, True, True, False])
    ours = block_information(
        Sequence(3), SequencePotentials(logw_M[None]), logp_MLV, masked_L, 20_000
    )
    exact = step_information(logw_M, logp_MLV[:, masked_L])
    assert abs(ours.information.value - exact.information.value) < 4 * ours.information.se
    gap = ours.total_correlation.value - exact.total_correlation.value
    assert abs(gap) < 4 * ours.information.se
    assert ours.prior_entropy == pytest.approx(exact.prior_entropy)

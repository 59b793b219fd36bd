"""EM against enumeration, and what a warm-up takes from it."""

from __future__ import annotations

import pytest
import torch

from lkf_plugin.latents.em import ContextFreeLaw, fit, warm_up_nll
from tests.latents.enumeration import (
    CASES,
    STRINGS,
    L,
    V,
    all_latents,
    log_joint,
    random_potentials,
)

every_structure = pytest.mark.parametrize("structure", CASES.values(), ids=CASES.keys())


def random_law(structure, period: int = 1, seed: int = 0) -> ContextFreeLaw:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(period, V, structure.components, generator=generator, dtype=torch.float64)
    return ContextFreeLaw(
        structure, random_potentials(structure, 1, seed), torch.log_softmax(logits, dim=1)
    )


@every_structure
def test_a_fitted_law_is_a_law(structure):
    law = fit(structure, STRINGS[::7], V, rounds=3, period=2)
    assert law.log_prob(STRINGS).exp().sum().item() == pytest.approx(1, abs=1e-12)


@every_structure
def test_fast_e_step_is_the_exact_one(structure):
    law = random_law(structure)
    x_BL = STRINGS[5:30]
    fast = structure.expectation(law.potentials, law.ell(x_BL))
    exact = law.posterior(x_BL)
    torch.testing.assert_close(fast.log_psi_B, exact.log_psi_B)
    torch.testing.assert_close(fast.gamma_BGM.expand_as(exact.gamma_BGM), exact.gamma_BGM)
    for ours, theirs in zip(fast.counts, exact.counts, strict=True):
        torch.testing.assert_close(ours, theirs.sum(0, keepdim=True))


@every_structure
@pytest.mark.parametrize("tied", [True, False])
def test_every_round_raises_the_likelihood(structure, tied):
    data = STRINGS[torch.randint(len(STRINGS), (60,), generator=torch.Generator().manual_seed(1))]
    nats = [
        -fit(structure, data, V, rounds=r, period=2, tied=tied, smoothing=1e-6).log_prob(data).sum()
        for r in range(7)
    ]
    assert all(after <= before + 1e-3 for before, after in zip(nats, nats[1:], strict=False))
    assert nats[-1] < nats[0]


@every_structure
def test_one_round_is_the_expected_share_of_all_latents(structure):
    """The M step by enumeration: emissions are posterior shares of (component, token) cells."""
    data = STRINGS[::11]
    start, after = (fit(structure, data, V, rounds=r, period=2, smoothing=1e-9) for r in (0, 1))
    z_ZG = all_latents(structure)
    component_ZL = z_ZG[:, structure.blocks.group_of(L)]
    cells_PVM = torch.zeros(2, V, structure.components, dtype=torch.float64)
    table_RM = start.log_emission_PVM
    for x_L in data:
        logp_ML = torch.stack([table_RM[i % 2, x_L[i]] for i in range(L)], -1)
        post_Z = torch.softmax(log_joint(structure, start.potentials, logp_ML, z_ZG), 0)
        for i in range(L):
            cells_PVM[i % 2, x_L[i]].index_add_(0, component_ZL[:, i], post_Z)
    expected = cells_PVM / cells_PVM.sum(1, keepdim=True)
    torch.testing.assert_close(after.log_emission_PVM.exp(), expected, atol=1e-5, rtol=0)


@every_structure
def test_warm_up_bounds_the_step_and_has_its_gradient_at_the_posterior(structure):
    law = random_law(structure)
    x_BL = STRINGS[5:9]
    clean = law.posterior(x_BL)
    entropy_B = structure.entropy(structure.condition(law.potentials_of(4), law.ell(x_BL)))
    torch.testing.assert_close(
        warm_up_nll(law.potentials_of(4), law.ell(x_BL), clean) - entropy_B, -law.log_prob(x_BL)
    )
    p = random_potentials(structure, 4, seed=7)
    ell_BGM = random_law(structure, seed=8).ell(x_BL)
    bound_B = warm_up_nll(p, ell_BGM, clean) - entropy_B
    assert (bound_B > -structure.log_psi(p, ell_BGM)).all()

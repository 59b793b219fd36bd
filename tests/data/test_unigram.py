from __future__ import annotations

import math

import numpy as np
import pytest

from lkf_plugin.data.tokenizer import complete
from lkf_plugin.data.train_tokenizer import train_tokenizer
from lkf_plugin.data.unigram import text_size, unigram_nats


def block(rows: list[list[int]], mask: list[list[int]] | None = None) -> tuple:
    ids = np.array(rows, dtype=np.uint16)
    return ids, np.ones_like(ids, dtype=np.int8) if mask is None else np.array(mask, dtype=np.int8)


def test_closed_form_with_a_frame_that_costs_nothing() -> None:
    train = block([[9, 1, 1, 8], [9, 1, 2, 8], [9, 1, 2, 8]])  # the second place is fixed, too
    held_out = block([[9, 1, 2, 8], [9, 1, 3, 8]])
    # counted: 1 once and 2 twice, each of ten entries once more: 13 in all
    expected = (math.log(13 / 3) + math.log(13 / 1)) / 8
    assert unigram_nats(train, held_out, 10) == pytest.approx(expected, rel=1e-12)


def test_padding_does_not_count() -> None:
    train = block(
        [[9, 1, 2, 0], [9, 2, 8, 0], [9, 8, 0, 0]], [[1, 1, 1, 0], [1, 1, 1, 0], [1, 1, 0, 0]]
    )
    held_out = block([[9, 1, 0, 0]], [[1, 1, 0, 0]])
    assert unigram_nats(train, held_out, 10) == pytest.approx(math.log(15 / 2) / 2, rel=1e-12)


def test_it_is_the_entropy_on_the_training_text_itself() -> None:
    rows = np.random.default_rng(0).integers(0, 50, size=(4_000, 16))
    block_ = rows.astype(np.uint16), np.ones(rows.shape, np.int8)
    shares = np.bincount(rows.ravel(), minlength=50) / rows.size
    entropy = -(shares * np.log(shares)).sum()
    assert unigram_nats(block_, block_, 50) == pytest.approx(entropy, abs=1e-4)


def test_size_of_a_text_cut_inside_characters() -> None:
    text = "caf\u00e9 \u65e5\u672c " * 9
    tokenizer = complete(train_tokenizer(lambda: ["abc"] * 3, "bpe", 262), "t")
    ids = tokenizer.encode(text, add_special_tokens=False)
    rows = [[2, *ids[i : i + 5], 3] for i in range(0, len(ids) - 4, 5)]
    whole = len(ids) // 5 * 5 == len(ids)
    characters, size = text_size(block(rows), tokenizer)
    if whole:
        assert (characters, size) == (len(text), len(text.encode()))
    else:
        cut = bytes(text.encode()[: len(rows) * 5]).decode("utf-8", "replace")
        assert (characters, size) == (len(cut), len(cut.encode()))

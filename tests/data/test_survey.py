from __future__ import annotations

import time

import numpy as np
import pytest

from lkf_plugin.data.survey import Survey, pieces, spread, suitable_vocab_size, survey


@pytest.mark.parametrize(
    ("text", "long_runs"),
    [
        ("a b " * 1_000, False),
        ("x" * 1_000 + " " + "y" * 1_000, False),
        ("x" * 1_001, True),
        ("a " + "x" * 1_001 + " b", True),
        ("a" + " " * 1_000 + "b", False),
        ("a" + " " * 1_001 + "b", True),
        ("a\n" * 1_001, False),
    ],
)
def test_survey(text: str, long_runs: bool) -> None:
    assert survey(lambda: ["some", text]) == Survey(len(text) + 4, long_runs)


def test_looking_for_runs_is_linear() -> None:
    text = ("x" * 999 + " ") * 1_000  # a megabyte; tried at every letter it takes ten seconds
    start = time.process_time()
    assert not survey(lambda: [text]).long_runs
    assert time.process_time() - start < 2


@pytest.mark.parametrize("text", ["", "abc", "a b c d e f " * 40, "x" * 99, "a  b" * 50, " " * 70])
def test_pieces_are_the_text_cut_before_single_blanks(text: str) -> None:
    cut = list(pieces(text, 20))
    assert "".join(cut) == text and all(0 < len(piece) <= 20 for piece in cut if text)
    if text.startswith("a b"):
        assert all(piece.startswith(" ") and not piece.endswith(" ") for piece in cut[1:-1])


def test_spread_takes_an_even_part() -> None:
    documents = [f"{i:04}" * 25 for i in range(1_000)]  # 100 characters each
    assert spread(lambda: documents, 100_000, None)() is documents
    assert spread(lambda: documents, 100_000, 100_000)() is documents
    part = list(spread(lambda: documents, 100_000, 10_000)())
    numbers = [int(text[:4]) for text in part]
    assert 95 <= len(part) <= 105 and {*np.diff(numbers)} <= {9, 10, 11}


def test_spread_cuts_one_long_document() -> None:
    text = "word " * 200_000
    part = list(spread(lambda: [text], len(text), 300_000)())
    assert 250_000 <= sum(map(len, part)) <= 450_000 and all(len(p) <= 100_000 for p in part)


def test_vocabulary_by_the_amount_of_text() -> None:
    sizes = [suitable_vocab_size(n) for n in (0, 20_000, 200_000, 1_000_000, 10**7, 10**8)]
    assert sizes == [320, 320, 384, 960, 2_048, 2_048]

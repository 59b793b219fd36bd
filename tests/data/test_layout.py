from __future__ import annotations

import numpy as np
import pytest

from lkf_plugin.data import layout
from lkf_plugin.data.layout import Encoded, unwrapped, windows, wrapped

BOS, EOS, PAD = 90, 91, 92


def docs(*rows: list[int]) -> list[Encoded]:
    return [Encoded(np.array(row, dtype=np.int32)) for row in rows]


@pytest.mark.parametrize("rows_per_block", [1, 4096])
def test_wrapped_by_hand(rows_per_block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "_ROWS_PER_BLOCK", rows_per_block)
    blocks = list(wrapped(docs([1, 2, 3, 4], [], [5, 6], [7]), 5, BOS, EOS))
    # The stream is 1 2 3 4 E E 5 6 E 7 E; its last two tokens do not fill a sequence.
    expected = [[BOS, 1, 2, 3, EOS], [BOS, 4, EOS, EOS, EOS], [BOS, 5, 6, EOS, EOS]]
    assert np.concatenate([ids for ids, _ in blocks]).tolist() == expected
    assert all((mask == 1).all() for _, mask in blocks)


def test_wrapped_too_short() -> None:
    assert list(wrapped(docs([1]), 5, BOS, EOS)) == []


def test_unwrapped_by_hand() -> None:
    [(ids, mask)] = unwrapped(docs([1, 2], [1, 2, 3, 4], []), 5, BOS, EOS, PAD)
    assert ids.tolist() == [
        [BOS, 1, 2, EOS, PAD],
        [BOS, 1, 2, 3, EOS],
        [BOS, EOS, PAD, PAD, PAD],
    ]
    assert mask.tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1], [1, 1, 0, 0, 0]]


def window_starts(stride: int | None, forbidden: np.ndarray | None = None) -> list[int]:
    starts = np.array([1, 0, 1, 1, 0, 0, 1, 0, 1, 1], dtype=bool)
    document = Encoded(np.arange(10, dtype=np.int32), starts)
    short = Encoded(np.arange(2, dtype=np.int32), np.ones(2, dtype=bool))
    blocks = list(windows([short, document], 3, stride, forbidden))
    for ids, _ in blocks:
        assert (np.diff(ids, axis=1) == 1).all()
    return [int(row[0]) for ids, _ in blocks for row in ids]


def test_windows_start_at_words_inside_a_document() -> None:
    assert window_starts(None) == [0, 3, 6]
    assert window_starts(1) == [0, 2, 3, 6]
    assert window_starts(4) == [0, 6]


def test_windows_with_forbidden_tokens_are_dropped() -> None:
    forbidden = np.zeros(10, dtype=bool)
    forbidden[4] = True
    assert window_starts(None, forbidden) == [0, 6]

"""How many words of sampled text the training text knows: quality without a judge.

Words of four letters and more, since shorter strings of letters are words by chance. The last word
of a window may be cut, and is left out on both sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from lkf_plugin.evaluate.likelihood import ratio_per_token
from lkf_plugin.records.estimate import Estimate

SHORTEST = 4  # letters


def words_of(text: str) -> list[str]:
    """The whole, longer words of a window."""
    return [word for word in text.split()[:-1] if len(word) >= SHORTEST]


def vocabulary(texts: Iterable[str]) -> frozenset[str]:
    """The words of a training text."""
    return frozenset(word for text in texts for word in words_of(text))


def known_share(texts: Sequence[str], known: frozenset[str]) -> Estimate:
    """Share of the words that are known, its error over texts; 0 where there are none."""
    counts = np.array([len(words_of(text)) for text in texts], dtype=float)
    hits = np.array([sum(word in known for word in words_of(text)) for text in texts], dtype=float)
    return ratio_per_token(hits, counts) if counts.sum() else Estimate(0.0, None, len(texts))

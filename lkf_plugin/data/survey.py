"""What a tokenizer learns from: how much text there is, and a part of it that is spread evenly."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

LONGEST_RUN = 1_000
# The anchor lets only the first character of a run be tried: linear in the length of the text.
_LONG_RUN = re.compile(
    rf"(?<!\S)\S{{{LONGEST_RUN + 1}}}|(?<!\s)\s{{{LONGEST_RUN + 1}}}",
)
_PIECE = 100_000
_SMALLEST, _LARGEST = 320, 2_048

Documents = Callable[[], Iterable[str]]


@dataclass(frozen=True)
class Survey:
    """Counts of a text.

    Attributes:
        characters: All of them.
        long_runs: Whether more than ``LONGEST_RUN`` characters follow each other without a blank,
            or as many blanks.
    """

    characters: int
    long_runs: bool


def survey(documents: Documents) -> Survey:
    """Reads the text once."""
    characters, long_runs = 0, False
    for text in documents():
        characters += len(text)
        long_runs = long_runs or _LONG_RUN.search(text) is not None
    return Survey(characters, long_runs)


def spread(documents: Documents, characters: int, at_most: int | None) -> Documents:
    """Gives a part of the documents, spread evenly, of about ``at_most`` characters.

    Args:
        documents: Gives all of them.
        characters: How many characters these have.
        at_most: None, or a number that is not less than ``characters``, gives all.
    """
    if at_most is None or characters <= at_most:
        return documents
    share = at_most / characters

    def part() -> Iterator[str]:
        passed = kept = 0
        for document in documents():
            for piece in pieces(document, _PIECE):
                if kept <= passed * share:
                    kept += len(piece)
                    yield piece
                passed += len(piece)

    return part


def pieces(text: str, at_most: int) -> Iterator[str]:
    """Cuts a text into pieces of ``at_most`` characters, before a single blank where there is one.

    A blank that follows a word and precedes another starts a token in every tokenizer that
    separates words, so cutting there changes none. Where there is no such blank in the second
    half of a piece, the cut falls where it falls.
    """
    start = 0
    while len(text) - start > at_most:
        stop = start + at_most
        blank = text.rfind(" ", start + at_most // 2, stop)
        while blank > 0 and (text[blank - 1].isspace() or text[blank + 1].isspace()):
            blank = text.rfind(" ", start + at_most // 2, blank)
        stop = blank if blank > 0 else stop
        yield text[start:stop]
        start = stop
    yield text[start:]


def suitable_vocab_size(characters: int) -> int:
    """A vocabulary for so much text: its square root, a multiple of 64 from 320 to 2,048.

    So every entry is met some hundred times, all 256 bytes have a place, and the head of a small
    network stays affordable on a CPU.
    """
    return min(max(math.isqrt(characters) // 64 * 64, _SMALLEST), _LARGEST)

"""Markdown that every comparison's tables are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from experiments.compare.rows import Row, row_label
from experiments.compare.store import Entry


def header(columns: Sequence[str]) -> list[str]:
    """The head of a table."""
    return [line(columns), "|" + "---|" * len(columns)]


def line(texts: Sequence[str]) -> str:
    """One line of a table."""
    return "| " + " | ".join(texts) + " |"


def by_steps(
    entries: Mapping[str, Entry],
    rows: Mapping[str, Row],
    steps: Sequence[int],
    text: Callable[[dict[str, Any]], str],
) -> Iterator[str]:
    """A line for each row and decoding, ``text`` of its cell under each J."""
    for name, entry in entries.items():
        for decode in rows[name].decodings:
            found = {cell["J"]: cell for cell in entry["cells"] if cell["decode"] == decode}
            texts = [text(found[J]) if J in found else "" for J in steps]
            yield line([row_label(name, decode), *texts])


def calls(cell: Mapping[str, Any]) -> str:
    """The method's own count and what was run, a sample."""
    return f"({cell['steps_calls']:g} / {cell['network_calls']:.1f})"

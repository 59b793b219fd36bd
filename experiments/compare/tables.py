"""Cells that every comparison's tables are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from experiments.compare.entries import Entry, steps_of
from experiments.compare.methods import Row, row_label
from lkf_plugin.records.record import Record


def by_steps(
    entries: Mapping[str, Entry],
    rows: Mapping[str, Row],
    steps: Sequence[int],
    text: Callable[[Record], str],
) -> Iterator[list[str]]:
    """A line for each row and decoding, ``text`` of its cell under each J."""
    for name, entry in entries.items():
        for decode in rows[name].decodings:
            cells = {steps_of(cell): cell for cell in entry.under(decode)}
            texts = [text(cells[J]) if J in cells else "" for J in steps]
            yield [row_label(name, decode), *texts]


def calls(cell: Record) -> str:
    """The method's own count and what was run, per sample."""
    return f"({cell.value('calls'):g} / {cell.value('network_calls'):.1f})"


def sizes(entry: Entry) -> list[str]:
    """Weights of the network, and the step that it was trained to."""
    record = entry.nelbo
    return [f"{record.value('weights'):,.0f}", str(record.labels["trained_steps"])]

"""A table as data: measured figures beside the paper's."""

from __future__ import annotations

from dataclasses import dataclass, field

from lkf_plugin.evaluate.run_records import LIKELIHOOD
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.record import Record


@dataclass(frozen=True)
class Entry:
    """One place of a table.

    Attributes:
        measured: our figure, None where there is no record.
        entropy: H of the same samples (nats per sequence), shown in parentheses.
        paper: the paper's figure, with its H where it gives one.
        record: where the figure is from.
        flagged: the advantage behind the figure is one component's.
        deviation: of the figure between trainings, where there are several.
        seeds: trainings whose mean the figure is.
        calls: network calls a sample, where the table says them.
    """

    measured: Estimate | None = None
    entropy: float | None = None
    paper: float | None = None
    paper_entropy: float | None = None
    record: Record | None = None
    flagged: bool = False
    deviation: float | None = None
    seeds: int = 1
    calls: float | None = None


@dataclass
class Table:
    """Rows of entries under columns.

    Attributes:
        name: the paper's name of it.
        title: what it shows, with its metric.
        columns: headings of the entries.
        rows: (label, what it costs, entries).
        notes: sentences below it.
    """

    name: str
    title: str
    columns: list[str]
    rows: list[tuple[str, str, list[Entry]]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def records(self) -> list[Record]:
        """Every record that a figure is from."""
        return [e.record for _, _, entries in self.rows for e in entries if e.record is not None]

    @property
    def empty(self) -> bool:
        """Whether nothing in it was measured."""
        return not self.records()


def is_likelihood(record: Record) -> bool:
    """Whether it holds a likelihood, not samples."""
    return record.kind == LIKELIHOOD

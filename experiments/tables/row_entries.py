"""From records to the places of a table: which J there are, and what stands beside."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.tables import paper_numbers as paper
from experiments.tables.advantages import is_flagged
from experiments.tables.lookup import Lookup
from experiments.tables.table import Entry
from lkf_plugin.methods.method import uses_steps
from lkf_plugin.records.record import Record

SINGLE, NELBO, EVIDENCE = "commit", "best_of_m.nelbo", "best_of_m.evidence"


def grid_of(lookup: Lookup) -> list[int]:
    """The paper's J that were measured, all of them if none was."""
    measured = [J for J in paper.J_GRID if J in lookup.steps()]
    return measured or list(paper.J_GRID)


def last_of(lookup: Lookup) -> int:
    """The last of them."""
    return max(grid_of(lookup))


def paper_corpus(lookup: Lookup) -> str:
    """The paper's corpus whose numbers stand beside."""
    corpora = {record.corpus for record in lookup.records}
    return paper.WIKITEXT if any("wikitext" in one for one in corpora) else paper.LM1B


def at(numbers: Sequence[float | None] | None, J: int) -> float | None:
    """The paper's number at J."""
    return None if numbers is None else numbers[paper.J_GRID.index(J)]


def row_entries(
    lookup: Lookup,
    M: int,
    row: str,
    grid: Sequence[int],
    numbers: Sequence[float | None] | None,
    entropies: Sequence[float | None] | None = None,
    model: str = "lkf",
) -> list[Entry]:
    """The headline figure over J, the paper's numbers and entropies beside."""
    entries = []
    for J in grid:
        record = record_at(lookup, M, row, J, grid, model)
        entries.append(
            lookup.entry(record, at(numbers, J), at(entropies, J), is_flagged(lookup, record))
        )
    return entries


def record_at(
    lookup: Lookup, M: int, row: str, J: int, grid: Sequence[int], model: str
) -> Record | None:
    """The record of a place; a method without steps has one, which stands at the last J."""
    if uses_steps(model):
        return lookup.find(M, row, J, model)
    return lookup.find(M, row, None, model) if J == max(grid) else None


def split(pairs: Sequence[tuple[float, float] | None]) -> tuple[list[float | None], ...]:
    """(figures, entropies) of the paper's pairs."""
    return (
        [None if pair is None else pair[0] for pair in pairs],
        [None if pair is None else pair[1] for pair in pairs],
    )


def plain(lookup: Lookup, record: Record | None, metric: str, number: float | None) -> Entry:
    """A figure by name, without H."""
    figure = lookup.figure(record, metric)
    return Entry(figure, None, number, None, record if figure is not None else None)

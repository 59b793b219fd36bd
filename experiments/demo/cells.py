"""Which records are the demo's cells: rows by J."""

from __future__ import annotations

from collections.abc import Iterable

from experiments.demo.promises import BEST, FROZEN, ONE, ONE_BEST
from lkf_plugin.data.corpus import VALID
from lkf_plugin.records.record import Record

STEPS_J = (1, 2, 4, 8, 32)
CLAUSES = 4
# row -> (M, policy)
ROWS = {
    ONE: (1, "commit"),
    FROZEN: (8, "commit"),
    ONE_BEST: (1, "best_of_n"),
    BEST: (8, "best_of_m"),
}


def by_row(records: Iterable[Record]) -> dict[str, dict[int, Record]]:
    """The record of every cell: row -> J -> record, in the table's order."""
    cells = {(one.num_components, one.policy, one.steps): one for one in records}
    return {row: {J: cells[M, policy, J] for J in STEPS_J} for row, (M, policy) in ROWS.items()}


def valid_fractions(records: Iterable[Record]) -> dict[tuple[str, int], float]:
    """(row, J) -> fraction of valid texts."""
    rows = by_row(records)
    return {
        (row, J): one.metrics[VALID].value for row, own in rows.items() for J, one in own.items()
    }

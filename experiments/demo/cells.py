"""Which records are the demo's cells: rows by J."""

from __future__ import annotations

from collections.abc import Iterable

from experiments.demo.promises import BEST, FROZEN, ONE, ONE_BEST, TREE
from lkf_plugin.data.corpus import VALID
from lkf_plugin.records.record import Record

STEPS_J = (1, 2, 4, 8, 32)
CLAUSES = 4
# run -> what its command adds to the demo's; each has 1 or 8 branch passes
RUNS = {
    "M1": ("experiment=demo", "model.num_components=1"),
    "M8": ("experiment=demo", "model.num_components=8"),
    "tree": ("experiment=demo-tree",),
}
# row -> (run, policy)
ROWS = {
    ONE: ("M1", "commit"),
    FROZEN: ("M8", "commit"),
    TREE: ("tree", "commit"),
    ONE_BEST: ("M1", "best_of_n"),
    BEST: ("M8", "best_of_m"),
}


def by_row(records: Iterable[Record]) -> dict[str, dict[int, Record]]:
    """The record of every cell: row -> J -> record, in the table's order."""
    cells = {(_run_of(one), one.policy, one.steps): one for one in records}
    return {row: {J: cells[run, policy, J] for J in STEPS_J} for row, (run, policy) in ROWS.items()}


def _run_of(record: Record) -> str:
    """Which of the runs a record measures."""
    latent = (record.subject.get("model") or {}).get("latent", "sequence")
    return f"M{record.num_components}" if latent == "sequence" else str(latent)


def valid_fractions(records: Iterable[Record]) -> dict[tuple[str, int], float]:
    """(row, J) -> fraction of valid texts."""
    rows = by_row(records)
    return {
        (row, J): one.metrics[VALID].value for row, own in rows.items() for J, one in own.items()
    }

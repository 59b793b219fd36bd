"""A table as data: measured figures beside the paper's, and what may stand side by side."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from lkf_plugin.errors import UserError
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.record import LIKELIHOOD, ResultRecord

# What must agree among the records of one table.
MUST_AGREE = (
    "corpus",
    "corpus_digest",
    "wrap",
    "tokenizer",
    "tokenizer_digest",
    "length",
    "judge",
    "judge_revision",
    "judge_dtype",
    "samples",
    "precision",
    "ema",
    "seed",
)
# A likelihood has neither samples nor a judge, and draws no token.
OF_SAMPLES = ("judge", "judge_revision", "judge_dtype", "samples", "precision")


@dataclass(frozen=True)
class Entry:
    """One place of a table.

    Attributes:
        measured: our figure, None where there is no record.
        entropy: H of the same samples (nats a sequence), shown in parentheses.
        paper: the paper's figure, with its H where it gives one.
        record: where the figure is from.
        flagged: the advantage behind the figure is one component's.
    """

    measured: Estimate | None = None
    entropy: float | None = None
    paper: float | None = None
    paper_entropy: float | None = None
    record: ResultRecord | None = None
    flagged: bool = False


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

    def records(self) -> list[ResultRecord]:
        """Every record that a figure is from."""
        return [e.record for _, _, entries in self.rows for e in entries if e.record is not None]

    @property
    def empty(self) -> bool:
        """Whether nothing in it was measured."""
        return not self.records()


def check_comparable(records: Iterable[ResultRecord], where: str) -> None:
    """Refuses records that must not stand side by side.

    Raises:
        UserError: names the key, both values and both cells.
    """
    first: dict[str, tuple[object, str]] = {}
    for record in records:
        for key, theirs in _depends_on(record).items():
            ours, cell = first.setdefault(key, (theirs, record.cell))
            if ours != theirs:
                raise UserError(
                    f"{where}: {cell} has {key}={ours} and {record.cell} has {key}={theirs}: "
                    "they must not stand side by side, so measure one of them again or keep them "
                    "in different folders."
                )


def is_likelihood(record: ResultRecord) -> bool:
    """Whether it holds a likelihood, not samples."""
    return record.settings.get("row") == LIKELIHOOD


def _depends_on(record: ResultRecord) -> dict[str, object]:
    """What must be the same in every other record that has it, by key."""
    values: dict[str, object] = {
        key: getattr(record, key)
        for key in MUST_AGREE
        if not (is_likelihood(record) and key in OF_SAMPLES)
    }
    values["network precision"] = record.precision.split(",")[0].removeprefix("network ")
    if is_likelihood(record):
        values["sequences"] = next(iter(record.metrics.values())).n
    return values

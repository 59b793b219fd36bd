"""What a comparison has measured, by row: a likelihood, and a record per decoding and J."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lkf_plugin.errors import UserError
from lkf_plugin.evaluate.run_records import LIKELIHOOD
from lkf_plugin.records.record import Record

ROW, DECODE, STEPS = "compared", "decoding", "J"  # labels of the records


@dataclass
class Entry:
    """One row.

    Attributes:
        likelihood: with ``nelbo`` (nats per token) and ``weights``, the network's number of them.
        cells: (decoding, J) -> record of samples.
    """

    likelihood: Record | None = None
    cells: dict[tuple[str, int], Record] = field(default_factory=dict)

    @property
    def nelbo(self) -> Record:
        """The likelihood's record.

        Raises:
            UserError: it is not there.
        """
        if self.likelihood is None:
            (one, *_) = self.cells.values()
            raise UserError(f"there is no likelihood beside the record {one.name}: measure the row")
        return self.likelihood

    def under(self, decode: str) -> list[Record]:
        """Its cells under a decoding, J ascending."""
        return [self.cells[key] for key in sorted(self.cells) if key[0] == decode]


def collect(records: Iterable[Record], names: Iterable[str]) -> dict[str, Entry]:
    """The rows that have been measured, in the order of ``names``.

    Raises:
        UserError: two records of one place.
    """
    entries: dict[str, Entry] = {}
    for record in records:
        row = record.labels.get(ROW)
        if not isinstance(row, str):
            continue
        entry = entries.setdefault(row, Entry())
        if record.kind == LIKELIHOOD:
            known, entry.likelihood = entry.likelihood, record
        else:
            key = (str(record.labels[DECODE]), int(str(record.labels[STEPS])))
            known = entry.cells.get(key)
            entry.cells[key] = record
        if known is not None:
            raise UserError(
                f"{known.file_name} and {record.file_name} are of one place of the comparison: "
                "keep one of them in the folder."
            )
    return {name: entries[name] for name in names if name in entries}


def all_cells(entries: Mapping[str, Entry]) -> list[Record]:
    """The samples of all rows."""
    return [record for entry in entries.values() for record in entry.cells.values()]


def steps_of(record: Record) -> int:
    """J of a cell; AR's is the length of its texts."""
    return int(str(record.labels[STEPS]))

"""Records of one corpus by model, row and J."""

from __future__ import annotations

import re
from collections.abc import Sequence

from experiments.tables.table import Entry
from lkf_plugin.errors import UserError
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.record import ResultRecord

VALID = "valid"


class Lookup:
    """Finds the record of a table's place.

    Args:
        records: of one corpus.

    Raises:
        UserError: two records claim the same place.
    """

    def __init__(self, records: Sequence[ResultRecord]) -> None:
        self.records = list(records)
        self.by_place: dict[tuple[str, int, str, int | None], ResultRecord] = {}
        for record in records:
            place = (model_of(record), record.num_components, row_of(record), record.steps)
            if place in self.by_place:
                raise UserError(
                    f"{self.by_place[place].cell} and {record.cell} claim the same place of a "
                    "table: keep one of them in the folder."
                )
            self.by_place[place] = record
        self.metric = headline(self.records)

    @property
    def higher_is_better(self) -> bool:
        """Direction of the metric."""
        return self.metric == VALID

    def find(self, M: int, row: str, J: int | None, model: str = "lkf") -> ResultRecord | None:
        """The record of a place, if there is one."""
        return self.by_place.get((model, M, row, J))

    def figure(self, record: ResultRecord | None, name: str | None = None) -> Estimate | None:
        """A metric of a record; by default the headline metric."""
        name = name or self.metric
        return None if record is None or name is None else record.metrics.get(name)

    def value(self, record: ResultRecord | None, name: str) -> float | None:
        """A metric's value."""
        found = self.figure(record, name)
        return None if found is None else found.value

    def entry(
        self,
        record: ResultRecord | None,
        paper: float | None = None,
        paper_entropy: float | None = None,
        flagged: bool = False,
    ) -> Entry:
        """The headline figure with H beside, and the paper's."""
        figure, entropy = self.figure(record), self.value(record, "entropy")
        kept = record if figure is not None else None
        return Entry(figure, entropy, paper, paper_entropy, kept, flagged)

    def components(self) -> list[int]:
        """M of the mixtures, ascending."""
        return sorted({r.num_components for r in self.records if r.num_components > 1})

    def steps(self) -> list[int]:
        """J of the samples, ascending."""
        return sorted({r.steps for r in self.records if r.steps is not None and r.policy})


def row_of(record: ResultRecord) -> str:
    """The row that a record belongs to: how it was decoded."""
    return str(record.settings.get("row") or record.policy or record.cell)


def model_of(record: ResultRecord) -> str:
    """``lkf``, or the other method's name."""
    return str(record.settings.get("baseline") or "lkf")


def headline(records: Sequence[ResultRecord]) -> str | None:
    """The one figure of a corpus: a judge's perplexity, or the valid fraction; None without.

    Raises:
        UserError: more than one judge.
    """
    names = {
        name
        for record in records
        for name in record.metrics
        if name == VALID or re.fullmatch(r"gen_ppl\[[^\]]*\]", name)
    }
    if len(names) > 1:
        raise UserError(
            f"the records hold figures of several kinds ({', '.join(sorted(names))}), which never "
            "compare: keep them in different folders."
        )
    return names.pop() if names else None

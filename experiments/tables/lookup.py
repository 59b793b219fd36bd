"""Records of one corpus by model, row and J."""

from __future__ import annotations

import re
from collections.abc import Sequence

from experiments.tables.table import Entry
from lkf_plugin.data.corpus import VALID
from lkf_plugin.errors import UserError
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.identity import leaves
from lkf_plugin.records.record import Record


class Lookup:
    """Finds the record of a table's place.

    Args:
        records: of one corpus.

    Raises:
        UserError: two records of different identity claim the same place. Where only what stands
            beside the figures differs, the record that holds more is taken.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = list(records)
        self.by_place: dict[tuple[str, int, str, int | None], Record] = {}
        for record in records:
            place = (record.method, record.num_components, record.row, record.steps)
            self.by_place[place] = _fuller(self.by_place.get(place), record)
        self.records = [r for r in self.records if any(r is one for one in self.by_place.values())]
        self.metric = headline(self.records)

    @property
    def higher_is_better(self) -> bool:
        """Direction of the metric."""
        return self.metric == VALID

    def find(self, M: int, row: str, J: int | None, model: str = "lkf") -> Record | None:
        """The record of a place, if there is one."""
        return self.by_place.get((model, M, row, J))

    def figure(self, record: Record | None, name: str | None = None) -> Estimate | None:
        """A metric of a record; by default the headline metric."""
        name = name or self.metric
        return None if record is None or name is None else record.metrics.get(name)

    def value(self, record: Record | None, name: str) -> float | None:
        """A metric's value."""
        estimate = self.figure(record, name)
        return None if estimate is None else estimate.value

    def entry(
        self,
        record: Record | None,
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


def _fuller(known: Record | None, record: Record) -> Record:
    """Of two records of one place, the one that holds more; they must hold the same samples.

    Raises:
        UserError: they differ in what a figure depends on; names it.
    """
    if known is None:
        return record
    ours, theirs = (
        dict(leaves({"kind": r.kind, "subject": r.subject, "settings": r.settings}))
        for r in (known, record)
    )
    for key in sorted(ours.keys() | theirs.keys()):
        if not key.startswith("settings.eval.") and ours.get(key) != theirs.get(key):
            raise UserError(
                f"{known.file_name} and {record.file_name} claim the same place of a table, one "
                f"with {key}={ours.get(key)}, one with {theirs.get(key)}: keep one of them in the "
                "folder."
            )
    return record if len(record.metrics) > len(known.metrics) else known


def headline(records: Sequence[Record]) -> str | None:
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

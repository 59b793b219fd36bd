"""Records of one corpus by model, row and J."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from experiments.tables.table import Entry
from lkf_plugin.data.corpus import VALID
from lkf_plugin.errors import UserError
from lkf_plugin.evaluate.run_records import FIRST_SEED
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.identity import leaves
from lkf_plugin.records.record import Record

Place = tuple[str, int, str, int | None]


class OverSeeds(NamedTuple):
    """A figure's mean over trainings (``n`` of them) and its deviation; None of one."""

    mean: Estimate
    deviation: float | None


def model_of(record: Record) -> str:
    """The method, behind it the round where it has rounds: ``sdtt-r2``."""
    number = record.labels.get("round")
    return record.method if number is None else f"{record.method}-r{number}"


def seed_of(record: Record) -> int:
    """Seed of the training; records that are older than its label are of the first."""
    seed = record.labels.get("training_seed")
    return FIRST_SEED if seed is None else int(str(seed))


def place_of(record: Record) -> Place:
    """(method with its round, M, row, J)."""
    return model_of(record), record.num_components, record.row, record.steps


class Lookup:
    """Finds the record of a table's place, and those of the model's other trainings.

    A method with rounds stands in a place of its own after each: ``sdtt-r2``.

    Args:
        records: of one corpus.

    Attributes:
        records: of the first training of each model, which most tables are about.
        by_place: the same by place.
        by_seed: the seeds of the trainings, and a record of each, by place.

    Raises:
        UserError: two records of different identity claim the same place. Where only what stands
            beside the figures differs, the record that holds more is taken.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self.by_seed: dict[Place, dict[int, Record]] = {}
        for record in records:
            seeds = self.by_seed.setdefault(place_of(record), {})
            seed = seed_of(record)
            seeds[seed] = _fuller(seeds.get(seed), record)
        self.by_place = {place: seeds[min(seeds)] for place, seeds in self.by_seed.items()}
        self.records = [r for r in records if any(r is one for one in self.by_place.values())]
        self.metric = headline(self.records)

    @property
    def higher_is_better(self) -> bool:
        """Direction of the metric."""
        return self.metric == VALID

    def find(self, M: int, row: str, J: int | None, model: str = "lkf") -> Record | None:
        """The record of a place, if there is one."""
        return self.by_place.get((model, M, row, J))

    def rounds(self, method: str) -> list[int]:
        """The rounds of a method that were measured, ascending."""
        models = {model_of(record) for record in self.records if record.method == method}
        return sorted(int(model.rpartition("-r")[2]) for model in models if model != method)

    def over_seeds(self, record: Record | None, name: str | None = None) -> OverSeeds | None:
        """A metric over all trainings of a record's place; by default the headline metric."""
        name = name or self.metric
        if record is None or name is None:
            return None
        held = self.by_seed[place_of(record)].values()
        figures = [one.metrics[name] for one in held if name in one.metrics]
        if not figures:
            return None
        values = [one.value for one in figures]
        deviation = statistics.stdev(values) if len(values) > 1 else None
        error = figures[0].se if len(values) == 1 else None
        return OverSeeds(Estimate(statistics.fmean(values), error, len(values)), deviation)

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

    def repeated(
        self, record: Record | None, name: str | None = None, paper: float | None = None
    ) -> Entry:
        """A metric's mean over trainings; the headline metric (None) with H and calls beside."""
        trainings = self.over_seeds(record, name)
        if record is None or trainings is None:
            return Entry(paper=paper)
        entropy = self.over_seeds(record, "entropy") if name is None else None
        return Entry(
            trainings.mean, None if entropy is None else entropy.mean.value, paper, None, record,
            deviation=trainings.deviation, seeds=trainings.mean.n or 1,
            calls=record.value("network_calls") if name is None else None,
        )  # fmt: skip

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

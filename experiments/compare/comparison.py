"""A comparison: trains, evaluates and samples what is missing; it may be stopped at any time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.compare.entries import DECODE, ROW, STEPS, Entry, all_cells, collect
from experiments.compare.methods import BEST, Row, components
from experiments.compare.sampling import row_settings
from experiments.compare.training import run_of
from experiments.runner import train
from lkf_plugin.evaluate.attribution import attribution, one_fewer
from lkf_plugin.evaluate.evaluation import NETWORK
from lkf_plugin.evaluate.own_likelihood import held_out_nats, is_exact
from lkf_plugin.evaluate.quality import Quality
from lkf_plugin.evaluate.run_records import Cell, RunRecords
from lkf_plugin.progress import bar
from lkf_plugin.records.comparable import agree
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.record import Record
from lkf_plugin.records.store import read_records
from lkf_plugin.runs.load import LoadedRun, load_run

Grid = Callable[[str, str], Sequence[int]]  # (row, decode) -> values of J
RECORDS = "records"  # in the folder of the comparison


@dataclass(frozen=True)
class Comparison:
    """What is compared, and how.

    Attributes:
        out: folder of the runs and of the results.
        rows: every row by its name, in the order of the tables.
        grid: J of a row and a decoding.
        quality: run -> what judges its samples.
        attribute: whether best-of-M cells get the pick without the favourite component.
        samples: a cell.
        passes: draws of noise for the likelihood.
        seed: of training, likelihood and samples.
        batch_size: texts decoded at once.
        steps: of training, instead of the recipes'.
        perturb: whether training starts from weights moved by one last bit.
    """

    out: Path
    rows: Mapping[str, Row]
    grid: Grid
    quality: Callable[[LoadedRun], Quality]
    attribute: bool
    samples: int
    passes: int
    seed: int
    batch_size: int = 64
    steps: int | None = None
    perturb: bool = False

    @property
    def folder(self) -> Path:
        """Of the records."""
        return self.out / RECORDS

    def fill(self, name: str) -> tuple[LoadedRun, Entry]:
        """Trains, evaluates and samples what is missing of one row; returns its run and records."""
        trained = run_of(self.out, self.rows, name, self.seed, self.steps, self.perturb)
        train([trained])
        run = load_run(trained.folder)
        records, quality = RunRecords(run, self.folder, self.seed), self.quality(run)
        entry = Entry(self._likelihood(records, name))
        plan = [(d, J) for d in self.rows[name].decodings for J in self.grid(name, d)]
        for decode, J in bar(plan, f"sampling {name}", "cell", keep=True):
            cell = self._cell(records, quality, name, decode, J)
            entry.cells[decode, J] = records.find(cell) or self._measured(
                records, quality, cell, name, decode, J
            )
        return run, entry

    def entries(self, filled: Mapping[str, Entry]) -> dict[str, Entry]:
        """The filled rows and those of earlier calls that may stand beside them, as tables go."""
        (first, *_) = all_cells(filled)
        earlier = [
            record
            for record in (read_records(self.folder))
            if record.labels.get(ROW) not in filled and agree(record, first)
        ]
        known = {**collect(earlier, self.rows), **filled}
        return {name: known[name] for name in self.rows if name in known}

    def _likelihood(self, records: RunRecords, name: str) -> Record:
        run = records.run
        passes = 1 if is_exact(run) else self.passes
        assert run.prepared.valid is not None
        how = {"passes": passes, "batch_size": run.config.loader.eval_batch_size}
        cell = records.likelihood(len(run.prepared.valid), NETWORK, estimator=how)
        if known := records.find(cell):
            return known
        weights = sum(p.numel() for p in run.module.backbone.parameters())
        metrics = {
            "nelbo": held_out_nats(run, passes, self.seed),
            "weights": Estimate(float(weights), 0.0),
        }
        labels: dict[str, Any] = {ROW: name}
        return records.write(cell, metrics, **labels)

    def _cell(self, records: RunRecords, quality: Quality, name: str, decode: str, J: int) -> Cell:
        kind, M = None, components(name)
        if self.attribute and decode == BEST and M is not None:
            kind = "one_fewer" if M == 1 else "components"
        return records.samples(
            row_settings(name, decode),
            J,
            self.samples,
            NETWORK,
            quality.judged_by,
            quality.self_bleu_subset,
            attribution=kind,
            judged_chains=0 if kind else None,
        )

    def _measured(
        self, records: RunRecords, quality: Quality, cell: Cell, name: str, decode: str, J: int
    ) -> Record:
        """Samples of a cell: quality, diversity, and what a component's absence changes.

        Solo figures of the components are left out: they would cost the judge M times as many
        texts.
        """
        settings: dict[str, Any] = row_settings(name, decode)
        drawn = records.run.sample(settings, J, self.samples, self.seed, self.batch_size)
        metrics = quality.measure(drawn.x_GL)
        kind = cell.settings["eval"]["attribution"]
        if kind == "one_fewer":
            metrics |= one_fewer(drawn, quality)
        elif kind == "components":
            metrics |= attribution(drawn, quality, judged=0)
        labels: dict[str, Any] = {ROW: name, DECODE: decode, STEPS: J}
        return records.write(cell, metrics, drawn, **labels)

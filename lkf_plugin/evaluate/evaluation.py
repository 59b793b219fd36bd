"""Cells of one run, each measured once and kept as a record.

A cell whose record is there is not run again: an evaluation that was killed goes on where it was.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from lkf_plugin.decode.options import DecodeOptions
from lkf_plugin.evaluate.attribution import (
    attribution,
    match_temperature,
    one_fewer,
    pooled,
)
from lkf_plugin.evaluate.cells import Samples, decode_cell, row_name
from lkf_plugin.evaluate.ends import both_ends, real_text
from lkf_plugin.evaluate.latent import latent_information
from lkf_plugin.evaluate.likelihood import likelihood
from lkf_plugin.evaluate.quality import Quality
from lkf_plugin.evaluate.run_records import RunRecords, precision_name
from lkf_plugin.judge.judge import decode_samples
from lkf_plugin.judge.mauve import mauve, mauve_name
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.record import LIKELIHOOD, ResultRecord, Scalar, read_record
from lkf_plugin.runs.load import LoadedRun

INFORMATION = "information"
PRECISION = precision_name("32-true", "float64")


@dataclass
class Evaluation:
    """One run, what judges it, and the folder of its records.

    Attributes:
        run: the trained model.
        quality: what judges its samples.
        folder: of the records.
        samples: a cell.
        seed: of the samples.
        batch_size: samples decoded at once.
        judged_chains: chains a component that the judge hears for its solo figure; None is all.
        reuse: whether a record that is there is taken as it is.
        featurizer: model whose features MAUVE compares; None leaves MAUVE out.
    """

    run: LoadedRun
    quality: Quality
    folder: Path
    samples: int
    seed: int = 0
    batch_size: int = 64
    judged_chains: int | None = None
    reuse: bool = True
    featurizer: str | None = None
    _memory: dict[Hashable, Tensor] = field(default_factory=dict)

    @property
    def components(self) -> int:
        """M."""
        return self.records.components

    @functools.cached_property
    def records(self) -> RunRecords:
        """What names and fills the records."""
        return RunRecords(self.run, self.folder, self.seed)

    def kept(self, row: str, steps: int | None) -> ResultRecord | None:
        """The cell's record, if it is there and was made from this checkpoint in this way.

        One that ``main.py`` left is made anew: it holds less.
        """
        path = self.folder / f"{self.records.cell_name(row, steps)}.json"
        if not self.reuse or not path.is_file():
            return None
        record, judge = read_record(path), self.quality.judge
        same = (
            "mode" not in record.settings
            and record.checkpoint_digest == self.records.checkpoint
            and record.samples == self.samples
            and record.seed == self.seed
            and record.judge == (judge.label if judge else None)
        )
        return record if same else None

    # --- cells ---------------------------------------------------------------------------------

    def policy(
        self, settings: Mapping[str, Any], steps: int, attribute: bool = False
    ) -> ResultRecord:
        """A policy at J steps: quality and diversity, with attribution where it selects.

        Args:
            settings: as in the Hydra group ``decode``.
            steps: J.
            attribute: measure the single components and the pick without the favourite, which
                cost the judge M + 1 times as many texts.
        """
        row = row_name(settings)
        kept = self.kept(row, steps)
        if kept and (self.featurizer is None or mauve_name(self.featurizer) in kept.metrics):
            return kept
        drawn = self.draw(settings, steps)
        metrics = self.quality.measure(drawn.ids_SL)
        metrics |= {key: Estimate(value, None, self.samples) for key, value in drawn.facts.items()}
        if self.featurizer is not None:
            metrics[mauve_name(self.featurizer)] = self._mauve(drawn.ids_SL, self.featurizer)
        options = DecodeOptions.read(settings)
        pool = drawn.candidates_SCL is not None
        if attribute and pool and options.policy == "best_of_m" and self.components > 1:
            metrics |= attribution(drawn, self.quality, self.judged_chains)
        if attribute and pool and options.policy == "best_of_n":
            metrics |= one_fewer(drawn, self.quality)
        costs = {"network_calls": drawn.network_calls}
        return self._write(row, steps, metrics, settings, drawn.steps_calls, costs)

    def matched(
        self, settings: Mapping[str, Any], steps: int, target: float, name: str
    ) -> ResultRecord:
        """A control at the sampling temperature that gives it the pooled entropy ``target``."""
        row = f"{row_name(settings)}.{name}"
        if kept := self.kept(row, steps):
            return kept

        def entropy_at(temperature: float) -> float:
            return pooled(self.draw({**settings, "temperature": temperature}, steps).ids_SL)

        plain = self.entropy_of(self.components, row_name(settings), steps)
        temperature = match_temperature(entropy_at, target, plain)
        tempered = {**settings, "temperature": temperature}
        drawn = self.draw(tempered, steps)
        metrics = self.quality.measure(drawn.ids_SL)
        costs = {"network_calls": drawn.network_calls, "matched_entropy": target}
        return self._write(row, steps, metrics, tempered, drawn.steps_calls, costs)

    def likelihood(self, sequences: int, draws: int = 8) -> ResultRecord:
        """Marginal NELBO of held-out sequences."""
        if kept := self.kept(LIKELIHOOD, None):
            return kept
        metrics = likelihood(self.run, sequences, draws, self.seed, self.batch_size)
        return self._write(
            LIKELIHOOD, None, metrics, None, None, {"draws": draws, "sequences": sequences}
        )

    def information(self, steps: int, trajectories: int = 8, draws: int = 2048) -> ResultRecord:
        """I(k), TC and router entropy at the start and along trajectories of J steps."""
        if kept := self.kept(INFORMATION, steps):
            return kept
        metrics = latent_information(self.run, steps, trajectories, draws, self.seed)
        more = {"trajectories": trajectories, "draws": draws}
        return self._write(INFORMATION, steps, metrics, None, None, more)

    def ends(self) -> list[ResultRecord]:
        """Held-out text, and the same with its words shuffled."""
        names = ("real", "shuffled")
        kept = [record for name in names if (record := self.kept(name, None))]
        if len(kept) == len(names):
            return kept
        found = both_ends(self.run, self.quality, self.samples, self.seed)
        return [self._write(name, None, found[name], None, None, {}) for name in names]

    def draw(self, settings: Mapping[str, Any], steps: int) -> Samples:
        """The samples of a cell."""
        return decode_cell(
            self.run, settings, steps, self.samples, self.seed, self.batch_size, self._memory
        )

    def _mauve(self, ids_SL: Tensor, featurizer: str) -> Estimate:
        """MAUVE against as many held-out texts."""
        tokenizer = self.run.prepared.tokenizer
        texts = decode_samples(tokenizer, ids_SL)
        held_out = decode_samples(tokenizer, real_text(self.run, len(texts))[0])
        device = next(self.run.module.backbone.parameters()).device
        length = int(self.run.config.model.length)
        return mauve(texts, held_out, featurizer, length, self.seed, device, self.batch_size)

    def entropy_of(self, components: int, row: str, steps: int) -> float | None:
        """Pooled entropy in another model's record of the same corpus, if it is there."""
        name = f"{self.run.config.data.train}.M{components}.{row}.J{steps}.json"
        path = self.folder / name
        return read_record(path).metrics["pooled_entropy"].value if path.is_file() else None

    # --- records -------------------------------------------------------------------------------

    def _write(
        self,
        row: str,
        steps: int | None,
        metrics: dict[str, Estimate],
        settings: Mapping[str, Any] | None,
        calls: float | None,
        more: Mapping[str, Scalar],
    ) -> ResultRecord:
        return self.records.write(
            row,
            metrics,
            samples=self.samples,
            precision=PRECISION,
            steps=steps,
            policy=DecodeOptions.read(settings).policy if settings else None,
            decode=settings,
            calls=calls,
            judge=self.quality.judge,
            more=more,
        )

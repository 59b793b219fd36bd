"""Cells of one run, each measured once and kept as a record.

A cell whose record is there is not run again: an evaluation that was killed goes on where it was.
"""

from __future__ import annotations

import dataclasses
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
from lkf_plugin.evaluate.ends import both_ends
from lkf_plugin.evaluate.estimate import Estimate
from lkf_plugin.evaluate.latent import latent_information
from lkf_plugin.evaluate.likelihood import likelihood
from lkf_plugin.evaluate.provenance import (
    checkpoint_digest,
    code_version,
    library_versions,
    machine,
)
from lkf_plugin.evaluate.quality import Quality
from lkf_plugin.evaluate.record import ResultRecord, Scalar, read_record, write_record
from lkf_plugin.run.load import LoadedRun

LIKELIHOOD, INFORMATION = "likelihood", "information"


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
    """

    run: LoadedRun
    quality: Quality
    folder: Path
    samples: int
    seed: int = 0
    batch_size: int = 64
    judged_chains: int | None = None
    reuse: bool = True
    _memory: dict[Hashable, Tensor] = field(default_factory=dict)

    @property
    def components(self) -> int:
        """M."""
        return int(self.run.config.model.num_components)

    def cell_name(self, row: str, steps: int | None) -> str:
        """File name of a cell's record, without its ending."""
        name = f"{self.run.config.data.train}.M{self.components}.{row}"
        return name if steps is None else f"{name}.J{steps}"

    def kept(self, row: str, steps: int | None) -> ResultRecord | None:
        """The cell's record, if it is there and was made from this checkpoint in this way."""
        path = self.folder / f"{self.cell_name(row, steps)}.json"
        if not self.reuse or not path.is_file():
            return None
        record, judge = read_record(path), self.quality.judge
        same = (
            record.checkpoint_digest == self._checkpoint
            and record.samples == self.samples
            and record.seed == self.seed
            and record.judge == (judge.label if judge else None)
        )
        return record if same else None

    @functools.cached_property
    def _checkpoint(self) -> str:
        return checkpoint_digest(self.run.checkpoint)

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
        if kept := self.kept(row, steps):
            return kept
        drawn = self.draw(settings, steps)
        metrics = self.quality.measure(drawn.ids_SL)
        metrics |= {key: Estimate(value, None, self.samples) for key, value in drawn.facts.items()}
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

    @functools.cached_property
    def _code(self) -> str:
        return code_version()

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
        config, judge = self.run.config, self.quality.judge
        options = dataclasses.asdict(DecodeOptions.read(settings)) if settings else {}
        record = ResultRecord(
            cell=self.cell_name(row, steps),
            metrics=metrics,
            host="builtin",
            code=self._code,
            libraries=library_versions(),
            corpus=config.data.train,
            corpus_digest=self.run.prepared.digest,
            wrap=bool(config.data.wrap),
            tokenizer=Path(str(config.data.tokenizer_name_or_path)).name,
            tokenizer_digest=str(self.run.prepared.manifest["covers"]["tokenizer"]),
            checkpoint_digest=self._checkpoint,
            ema=self.run.module.ema is not None,
            num_components=self.components,
            latent_blocks=int(config.model.latent_blocks),
            policy=options.get("policy"),
            steps=steps,
            calls=calls,
            samples=self.samples,
            length=int(config.model.length),
            precision="network 32-true, draws float64",
            judge=judge.label if judge else None,
            judge_revision=judge.revision if judge else None,
            judge_dtype=str(judge.dtype).removeprefix("torch.") if judge else None,
            seed=self.seed,
            settings={"row": row, "trained_steps": self.run.step, **_own(settings), **more},
            machine=machine(),
        )
        write_record(record, self.folder)
        return record


def _own(settings: Mapping[str, Any] | None) -> dict[str, Scalar]:
    """The policy's settings, as a record keeps them."""
    return {f"decode.{key}": value for key, value in (settings or {}).items()}

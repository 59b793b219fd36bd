"""Cells of one run, each measured once and kept as a record.

A cell whose record is there is not run again: an evaluation that was killed goes on where it was.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from lkf_plugin.decode.options import DecodeOptions
from lkf_plugin.decode.policy import Decoded
from lkf_plugin.decode.registry import POLICIES, read_options
from lkf_plugin.errors import UserError
from lkf_plugin.evaluate.attribution import (
    attribution,
    match_temperature,
    one_fewer,
    pooled,
)
from lkf_plugin.evaluate.cells import row_name
from lkf_plugin.evaluate.dropped import drop_one
from lkf_plugin.evaluate.few_step import few_step
from lkf_plugin.evaluate.identity import beside_of, precision_of, sampling_of
from lkf_plugin.evaluate.latent import latent_information
from lkf_plugin.evaluate.likelihood import likelihood, nelbo_estimates
from lkf_plugin.evaluate.own_likelihood import held_out_nats, is_exact
from lkf_plugin.evaluate.quality import Quality
from lkf_plugin.evaluate.reference_text import both_ends, real_text
from lkf_plugin.evaluate.run_records import (
    ENDS,
    FEW_STEP,
    INFORMATION,
    LIKELIHOOD,
    SAMPLES,
    Cell,
    RunRecords,
    cell_name,
)
from lkf_plugin.judge.judge import decode_samples
from lkf_plugin.judge.mauve import mauve, mauve_name
from lkf_plugin.methods.method import LKF, is_latent_kernel
from lkf_plugin.processes import ALONE, Processes
from lkf_plugin.records.comparable import check_comparable
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.record import Record
from lkf_plugin.records.store import read_record
from lkf_plugin.runs.load import LoadedRun

DROP_ONE = "drop_one"
NETWORK = "32-true"  # precision of every evaluation here


@dataclass
class Evaluation:
    """One run, what judges it, and the folder of its records.

    Attributes:
        run: the trained model.
        quality: what judges its samples.
        folder: of the records.
        samples: a cell.
        seed: of the samples.
        batch_size: samples decoded at once; no number depends on it.
        judged_chains: chains per component that the judge hears for its solo figure; None is all.
        reuse: whether a record that is there is taken as it is.
        featurizer: model whose features MAUVE compares; None leaves MAUVE out.
        processes: that share the work; the first one keeps the records.
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
    processes: Processes = ALONE

    @property
    def components(self) -> int:
        """M."""
        return self.records.components

    @property
    def sequence_components(self) -> int:
        """K, what policies choose among; M where blocks have no latents of their own."""
        return int(self.run.config.model.get("num_components", 1))

    @functools.cached_property
    def records(self) -> RunRecords:
        """What names, fills and finds the records."""
        return RunRecords(self.run, self.folder, self.seed)

    def kept(self, cell: Cell) -> Record | None:
        """The cell's record, if one of its identity is there and may be taken."""
        return self.processes.by_first(lambda: self.records.find(cell)) if self.reuse else None

    def keep(
        self, cell: Cell, metrics: Mapping[str, Estimate], drawn: Decoded | None = None
    ) -> Record:
        """Writes a cell's record; see ``RunRecords.write``."""
        return self.processes.by_first(lambda: self.records.write(cell, metrics, drawn))

    # --- what is to be measured ------------------------------------------------------------------

    def cell(self, settings: Mapping[str, Any], steps: int, attribute: bool = False) -> Cell:
        """A policy at J steps with everything that its figures depend on."""
        options = read_options(settings)
        if options.policy not in POLICIES:
            raise UserError(
                f"policy={options.policy} has no cells: take one of {', '.join(POLICIES)} "
                "(commit at M = 1 has MDLM's law)."
            )
        return self.records.samples(
            settings,
            steps,
            self.samples,
            NETWORK,
            self.quality.judged_by,
            self.quality.self_bleu_subset,
            attribution=self._attribution(options, attribute),
            judged_chains=self.judged_chains,
            mauve=self.featurizer,
        )

    def _common(self, draws: str | None = None) -> dict[str, Any]:
        return {
            "length": int(self.run.config.model.length),
            "seed": self.seed,
            "ema": self.run.module.ema is not None,
            "precision": precision_of(NETWORK, draws),
            **({"judge": self.quality.judged_by} if draws else {}),
        }

    def _attribution(self, options: DecodeOptions, asked: bool) -> str | None:
        """Which attribution a policy's cell gets: only those that select among finished chains."""
        if not asked or options.selector == "random":
            return None
        if options.policy == "best_of_m" and self.sequence_components > 1:
            return "components"
        return "one_fewer" if options.policy == "best_of_n" else None

    # --- cells -----------------------------------------------------------------------------------

    def policy(self, settings: Mapping[str, Any], steps: int, attribute: bool = False) -> Record:
        """A policy at J steps: quality and diversity, with attribution where it selects.

        Args:
            settings: as in the Hydra group ``decode``.
            steps: J.
            attribute: measure the single components and the pick without the favourite, which
                cost the judge M + 1 times as many texts.
        """
        cell = self.cell(settings, steps, attribute)
        if kept := self.kept(cell):
            return kept
        drawn = self.draw(settings, steps)
        metrics = self.quality.measure(drawn.x_GL)
        metrics |= {key: Estimate(value, None, self.samples) for key, value in drawn.facts.items()}
        if self.featurizer is not None:
            metrics[mauve_name(self.featurizer)] = self._mauve(drawn.x_GL, self.featurizer)
        kind = cell.settings["eval"]["attribution"]
        if kind == "components":
            metrics |= attribution(drawn, self.quality, self.judged_chains)
        elif kind == "one_fewer":
            metrics |= one_fewer(drawn, self.quality)
        return self.keep(cell, metrics, drawn)

    def own(self, steps: int) -> Record:
        """Another method's own sampler at J steps; J means nothing to a method without steps."""
        settings = {"policy": "auto"}
        cell = self.records.samples(
            settings,
            steps,
            self.samples,
            NETWORK,
            self.quality.judged_by,
            self.quality.self_bleu_subset,
            judged_chains=self.judged_chains,
            mauve=self.featurizer,
        )
        if kept := self.kept(cell):
            return kept
        drawn = self.draw(settings, steps)
        metrics = self.quality.measure(drawn.x_GL)
        if self.featurizer is not None:
            metrics[mauve_name(self.featurizer)] = self._mauve(drawn.x_GL, self.featurizer)
        return self.keep(cell, metrics, drawn)

    def matched(self, settings: Mapping[str, Any], steps: int, target: float, name: str) -> Record:
        """A control at the sampling temperature that gives it the pooled entropy ``target``."""
        plain = self.cell(settings, steps)
        row = f"{plain.row}.{name}"
        cell = Cell(SAMPLES, row, {**plain.settings, "matched": {"pooled_entropy": target}})
        if kept := self.kept(cell):
            return kept

        def entropy_at(temperature: float) -> float:
            return pooled(self.draw({**settings, "temperature": temperature}, steps).x_GL)

        known = self.processes.by_first(lambda: self.entropy_of(self.components, plain.row, steps))
        temperature = match_temperature(entropy_at, target, known)
        drawn = self.draw({**settings, "temperature": temperature}, steps)
        metrics = self.quality.measure(drawn.x_GL)
        metrics["temperature"] = Estimate(temperature)
        return self.keep(cell, metrics, drawn)

    def likelihood(self, sequences: int, draws: int = 8) -> Record:
        """Marginal NELBO of held-out sequences, as many as there are at most.

        Of another method than LKF by its own loss, ``draws`` times; AR's is exact.
        """
        assert self.run.prepared.valid is not None
        sequences = min(sequences, len(self.run.prepared.valid))
        if not is_latent_kernel(self.run.config):
            return self._own_likelihood(sequences, draws)
        cell = self.records.likelihood(sequences, NETWORK, estimator="stratified", draws=draws)
        if kept := self.kept(cell):
            return kept
        metrics = likelihood(
            self.run, sequences, draws, self.seed, self.batch_size, processes=self.processes
        )
        return self.keep(cell, metrics)

    def _own_likelihood(self, sequences: int, draws: int) -> Record:
        exact = is_exact(self.run)
        how = {"passes": 1 if exact else draws, "batch_size": self.batch_of_loss}
        cell = self.records.likelihood(sequences, NETWORK, estimator=how)
        if kept := self.kept(cell):
            return kept
        nelbo = held_out_nats(self.run, draws, self.seed, sequences, self.processes)
        eps = None if exact else float(self.run.config.training.sampling_eps)
        return self.keep(cell, nelbo_estimates(nelbo, eps))

    @property
    def batch_of_loss(self) -> int:
        """Sequences of a batch whose times are drawn together."""
        return int(self.run.config.loader.eval_batch_size)

    def few_step(self, steps: Sequence[int], sequences: int) -> Record:
        """Bounds on the likelihood of the run's own sampler of J steps, for each J.

        Raises:
            UserError: they are not defined for its sampler.
        """
        assert self.run.prepared.valid is not None
        sequences = min(sequences, len(self.run.prepared.valid))
        cell = self.records.likelihood(sequences, NETWORK, estimator={"few_step": list(steps)})
        cell = Cell(FEW_STEP, FEW_STEP, cell.settings)
        if kept := self.kept(cell):
            return kept
        bounds = few_step(self.run, steps, sequences, self.seed, processes=self.processes)
        return self.keep(cell, bounds.estimates)

    def drop_one(self, sequences: int, steps: Sequence[int]) -> Record | None:
        """Few-step likelihood with each component taken away; None where there is only one."""
        if self.components == 1 or self.run.config.loss.name == "two_time":
            return None
        assert self.run.prepared.valid is not None
        sequences = min(sequences, len(self.run.prepared.valid))
        how = {"estimator": "drop_one", "steps": list(steps)}
        settings = self.records.likelihood(sequences, NETWORK, **how).settings
        cell = Cell(LIKELIHOOD, DROP_ONE, settings)
        if kept := self.kept(cell):
            return kept
        metrics = drop_one(self.run, steps, sequences, self.seed, self.processes)
        return self.keep(cell, metrics)

    def information(self, steps: int, trajectories: int = 8, draws: int = 2048) -> Record:
        """I(k), TC and router entropy at the start and along trajectories of J steps."""
        settings = {
            **self._common(),
            "sampling": sampling_of(self.run.config, steps),
            "trajectories": trajectories,
            "draws": draws,
        }
        cell = Cell(INFORMATION, INFORMATION, settings)
        if kept := self.kept(cell):
            return kept
        metrics = self.processes.by_first(
            lambda: latent_information(self.run, steps, trajectories, draws, self.seed)
        )
        return self.keep(cell, metrics)

    def ends(self) -> list[Record]:
        """Held-out text, and the same with its words shuffled."""
        beside = beside_of(self.run.config, self.quality.self_bleu_subset)
        settings = {**self._common("float64"), "samples": self.samples, "eval": beside}
        cells = [Cell(ENDS, end, {**settings, "end": end}) for end in ("real", "shuffled")]
        kept = [record for cell in cells if (record := self.kept(cell))]
        if len(kept) == len(cells):
            return kept
        ends = both_ends(self.run, self.quality, self.samples, self.seed)
        return [self.keep(cell, ends[cell.row]) for cell in cells]

    def draw(self, settings: Mapping[str, Any], steps: int) -> Decoded:
        """The samples of a cell."""
        label = f"{row_name(settings)} J={steps}"
        return self.run.sample(
            settings, steps, self.samples, self.seed, self.batch_size, label, self.processes
        )

    def _mauve(self, ids_SL: Tensor, featurizer: str) -> Estimate:
        """MAUVE against as many held-out texts."""
        tokenizer = self.run.prepared.tokenizer
        texts = decode_samples(tokenizer, ids_SL)
        held_out = decode_samples(tokenizer, real_text(self.run, len(texts))[0])
        device = next(self.run.module.backbone.parameters()).device
        length = int(self.run.config.model.length)
        return self.processes.by_first(
            lambda: mauve(texts, held_out, featurizer, length, self.seed, device, self.batch_size)
        )

    def entropy_of(self, components: int, row: str, steps: int) -> float | None:
        """Pooled entropy in another model's record of the same corpus, if it is there.

        Raises:
            UserError: there are several, or one that must not be compared with this run's.
        """
        name = cell_name(self.run.config.data.train, LKF, components, row, steps)
        records = [read_record(path) for path in sorted(self.folder.glob(f"{name}-*.json"))]
        if not records:
            return None
        if len(records) > 1:
            raise UserError(
                f"{self.folder} has {len(records)} records called {name}: keep the one whose "
                "entropy is to be matched."
            )
        (record,) = records
        here = dataclasses.replace(
            record, name="this-run", subject=self.records.subject,
            settings=self.cell(record.settings["decode"], steps).settings,
        )  # fmt: skip
        check_comparable([record, here], f"entropy of {name}")
        return record.metrics["pooled_entropy"].value

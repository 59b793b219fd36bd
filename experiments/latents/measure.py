"""What is measured of a run: bounds of its few-step samplers, its EM ceiling, and its samples.

Shape legend: N windows, L positions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments.latents.known_words import known_share, vocabulary
from lkf_plugin.checkpoint_file import read_checkpoint
from lkf_plugin.data import PreparedData, prepare
from lkf_plugin.data.corpus import VALID
from lkf_plugin.evaluate.dropped import drop_one
from lkf_plugin.evaluate.evaluation import DROP_ONE, NETWORK
from lkf_plugin.evaluate.few_step import few_step
from lkf_plugin.evaluate.own_likelihood import held_out_nats
from lkf_plugin.evaluate.quality import Quality
from lkf_plugin.evaluate.run_records import LIKELIHOOD, Cell, RunRecords
from lkf_plugin.information.ceilings import ceiling, held_out
from lkf_plugin.judge.judge import decode_samples
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.record import Record
from lkf_plugin.runs.load import LoadedRun
from lkf_plugin.train.checkpoint import LAST
from lkf_plugin.train.cpu_seconds import cpu_seconds
from lkf_plugin.train.em_start import fitted_law, training_windows

FEW_STEP, CEILING, KNOWN, EXACT = "few_step", "em_ceiling", "known_words", "exact_nats"
ARM, SEED, STEPS = "arm", "training_seed", "J"  # labels
NATS = "few_step_nats"  # series: name of a bound -> nats of each sequence
DIGITS = 4  # of a sequence's nats
TRAINED = "cpu_seconds"
TEXTS = 20_000  # training windows that give the words that are known


def spread_out(prepared: PreparedData, sequences: int) -> PreparedData:
    """The data with so many held-out sequences, evenly over all of them."""
    assert prepared.valid is not None
    count = min(sequences, len(prepared.valid))
    places = np.linspace(0, len(prepared.valid) - 1, count).round().astype(int)
    return dataclasses.replace(prepared, valid=prepared.valid.select(places.tolist()))


def windows(rows: Any) -> Tensor:
    """All of a split, [N, L]."""
    return torch.as_tensor(rows[: len(rows)]["input_ids"]).long()


def measure_likelihood(
    run: LoadedRun, records: RunRecords, arm: str, steps: Sequence[int], sequences: int
) -> Record:
    """Bounds at each J, the ceiling of the run's structure at J = 1, and what training cost."""
    cell = records.likelihood(sequences, NETWORK, estimator=FEW_STEP, steps=list(steps))
    cell = Cell(LIKELIHOOD, FEW_STEP, cell.settings)
    if known := records.find(cell):
        return known
    prepared = spread_out(run.prepared, sequences)
    bounds = few_step(dataclasses.replace(run, prepared=prepared), steps, sequences, records.seed)
    whole = prepare(run.config, ("train",))
    metrics = {**bounds.estimates, CEILING: _ceiling(run, whole, windows(prepared.valid))}
    metrics |= _training_cost(run)
    labels: dict[str, Any] = {ARM: arm, SEED: int(run.config.seed)}
    nats = {name: np.round(values, DIGITS).tolist() for name, values in bounds.sequences.items()}
    return records.write(cell, metrics, series={NATS: nats}, **labels)


def measure_dropped(
    run: LoadedRun, records: RunRecords, arm: str, steps: Sequence[int], sequences: int
) -> Record:
    """Bounds on the same sequences with each component taken away."""
    how: dict[str, Any] = {"estimator": DROP_ONE, "steps": list(steps)}
    cell = Cell(LIKELIHOOD, DROP_ONE, records.likelihood(sequences, NETWORK, **how).settings)
    if known := records.find(cell):
        return known
    spread = dataclasses.replace(run, prepared=spread_out(run.prepared, sequences))
    metrics = drop_one(spread, steps, sequences, records.seed)
    labels: dict[str, Any] = {ARM: arm, SEED: int(run.config.seed)}
    return records.write(cell, metrics, **labels)


def measure_exact(run: LoadedRun, records: RunRecords, arm: str, sequences: int) -> Record:
    """The likelihood of a model that has it exactly, and what training cost."""
    cell = records.likelihood(sequences, NETWORK, estimator=EXACT)
    if known := records.find(cell):
        return known
    spread = dataclasses.replace(run, prepared=spread_out(run.prepared, sequences))
    metrics = {EXACT: held_out_nats(spread, 1, records.seed), **_training_cost(run)}
    labels: dict[str, Any] = {ARM: arm, SEED: int(run.config.seed)}
    return records.write(cell, metrics, **labels)


def _training_cost(run: LoadedRun) -> dict[str, Estimate]:
    seconds = cpu_seconds(read_checkpoint(Path(run.checkpoint).parent / LAST))
    return {} if seconds is None else {TRAINED: Estimate(seconds)}


def _ceiling(run: LoadedRun, whole: PreparedData, valid_NL: Tensor) -> Estimate:
    """What EM reaches at J = 1 with the run's structure: of two laws the one that fits new text.

    A law for each position says more, and overfits where the vocabulary is large.
    """
    structure = run.module.backbone.structure
    own = held_out(fitted_law(run.config, structure, whole), valid_NL)
    train_NL = training_windows(run.config, whole)
    shared = ceiling(structure, train_NL, valid_NL, whole.vocab_size, seed=int(run.config.seed))
    return min(own, shared, key=lambda estimate: estimate.value)


def measure_samples(
    run: LoadedRun,
    records: RunRecords,
    arm: str,
    settings: Mapping[str, Any],
    J: int,
    samples: int,
    quality: Quality,
) -> Record:
    """Samples at J: what judges them, the share of known words, and diversity."""
    cell = records.samples(settings, J, samples, NETWORK, quality.judged_by)
    if known := records.find(cell):
        return known
    drawn = run.sample(settings, J, samples, records.seed, min(samples, 128))
    metrics = quality.measure(drawn.x_GL)
    if VALID not in metrics:
        texts = decode_samples(run.prepared.tokenizer, drawn.x_GL)
        metrics[KNOWN] = known_share(texts, known_words(run))
    labels: dict[str, Any] = {ARM: arm, SEED: int(run.config.seed), STEPS: J}
    return records.write(cell, metrics, drawn, **labels)


_WORDS: dict[str, frozenset[str]] = {}  # by digest of the data: reading it takes seconds


def known_words(run: LoadedRun) -> frozenset[str]:
    """The words of the run's training text."""
    digest = run.prepared.digest
    if digest not in _WORDS:
        rows = prepare(run.config, ("train",)).train
        assert rows is not None
        places = np.linspace(0, len(rows) - 1, min(TEXTS, len(rows))).round().astype(int)
        ids_NL = torch.as_tensor(rows[places.tolist()]["input_ids"])
        _WORDS[digest] = vocabulary(decode_samples(run.prepared.tokenizer, ids_NL))
    return _WORDS[digest]

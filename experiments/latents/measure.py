"""What is measured of a run: bounds of its few-step samplers, its EM ceiling, and its samples.

Shape legend: N windows, L positions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments.latents.known_words import known_share, vocabulary
from lkf_plugin.checkpoint_file import read_checkpoint
from lkf_plugin.data import PreparedData, prepare
from lkf_plugin.evaluate.evaluation import NETWORK
from lkf_plugin.evaluate.few_step import few_step
from lkf_plugin.evaluate.policies import policy_settings
from lkf_plugin.evaluate.quality import quality_for
from lkf_plugin.evaluate.run_records import LIKELIHOOD, Cell, RunRecords
from lkf_plugin.information.ceilings import held_out
from lkf_plugin.judge.judge import decode_samples
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.record import Record
from lkf_plugin.runs.load import LoadedRun
from lkf_plugin.train.checkpoint import LAST
from lkf_plugin.train.cpu_seconds import cpu_seconds
from lkf_plugin.train.em_start import fitted_law

FEW_STEP, CEILING, KNOWN = "few_step", "em_ceiling", "known_words"
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
    few = few_step(dataclasses.replace(run, prepared=prepared), steps, sequences, records.seed)
    whole = prepare(run.config, ("train",))
    law = fitted_law(run.config, run.module.backbone.structure, whole)
    best = held_out(law, windows(prepared.valid))
    metrics = {**few.estimates, CEILING: best}
    folder = Path(run.checkpoint).parent
    seconds = cpu_seconds(read_checkpoint(folder / LAST))
    if seconds is not None:
        metrics[TRAINED] = Estimate(seconds)
    labels: dict[str, Any] = {ARM: arm, SEED: int(run.config.seed)}
    nats = {name: np.round(values, DIGITS).tolist() for name, values in few.sequences.items()}
    return records.write(cell, metrics, series={NATS: nats}, **labels)


def measure_samples(
    run: LoadedRun, records: RunRecords, arm: str, policy: str, J: int, samples: int
) -> Record:
    """Samples by a policy at J: the grammar's verdict or the share of known words, diversity."""
    quality = quality_for(run.config, run.prepared.tokenizer, None, self_bleu_subset=0)
    settings = policy_settings(policy)
    cell = records.samples(settings, J, samples, NETWORK, quality.judged_by)
    if known := records.find(cell):
        return known
    drawn = run.sample(settings, J, samples, records.seed, min(samples, 128))
    metrics = quality.measure(drawn.x_GL)
    if quality.metric is None:
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

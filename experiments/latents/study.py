"""Trains and measures what is missing of a study; it may be stopped at any time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from experiments.compare.methods import OWN
from experiments.compare.sampling import row_settings
from experiments.compare.training import run_of
from experiments.latents.arms import AUTOREGRESSIVE, DROPPED, SAMPLED, STUDIES, Study
from experiments.latents.measure import (
    measure_dropped,
    measure_exact,
    measure_likelihood,
    measure_samples,
)
from experiments.runner import train
from lkf_plugin.evaluate.policies import policy_settings
from lkf_plugin.evaluate.quality import open_judge, quality_for
from lkf_plugin.evaluate.run_records import RunRecords
from lkf_plugin.progress import bar
from lkf_plugin.records.record import Record
from lkf_plugin.runs.load import load_run

RECORDS = "records"  # in the folder of a study


def run_study(
    name: str,
    out: Path,
    arms: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    steps: int | None = None,
    samples: int | None = None,
    workers: int = 1,
) -> list[Record]:
    """The records of a study's runs, or of some of them.

    Args:
        name: of ``STUDIES``.
        out: folder of the study: ``seedS/ARM`` are its runs, ``records`` its records.
        arms: which runs; all by default.
        seeds: of training; the study's own by default.
        steps: of training, instead of the recipes'.
        samples: of a cell, instead of the study's.
        workers: trainings side by side.

    Raises:
        UserError: the judge is missing, before anything is trained; and what training and
            evaluation raise.
    """
    study, records = STUDIES[name], []
    if study.judge:
        open_judge(study.judge, "cpu")
    for seed in seeds or study.seeds:
        folder = out / f"seed{seed}"
        wanted = {arm: run_of(folder, study.rows, arm, seed, steps) for arm in arms or study.rows}
        train(list(wanted.values()), workers)
        for arm, run in wanted.items():
            records += _measure(study, arm, run.folder, out / RECORDS, samples)
    return records


def _measure(
    study: Study, arm: str, folder: Path, records: Path, samples: int | None
) -> list[Record]:
    run = load_run(folder)
    kept, *others = (RunRecords(run, records, seed) for seed in study.sampling_seeds)
    if arm == AUTOREGRESSIVE:
        return [measure_exact(run, kept, arm, study.sequences)]
    measured = []
    if arm != SAMPLED:
        measured = [measure_likelihood(run, kept, arm, study.steps_of(arm), study.sequences)]
    if kept.components > 1:
        measured.append(measure_dropped(run, kept, arm, DROPPED, study.sequences))
    count = study.samples if samples is None else samples
    if count:
        tokenizer = run.prepared.tokenizer
        quality = quality_for(run.config, tokenizer, study.judge, self_bleu_subset=0)
        policies = [policy_settings(policy) for policy in study.policies]
        if arm == SAMPLED:
            policies = [row_settings(arm, OWN)]
        cells = list(itertools.product((kept, *others), policies, study.steps))
        measured += [
            measure_samples(run, one, arm, policy, J, count, quality)
            for one, policy, J in bar(cells, f"sampling {arm}", "cell")
        ]
    return measured

"""Makes the paper's decoding tables: trains what is missing, measures what has no record yet.

Everything can be killed and started again: training goes on from its last checkpoint, and a cell
whose record fits is not run again.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

import torch

from experiments.paper.coupling import coupling
from experiments.paper.plan import Job, jobs_of
from experiments.paper.scales import LATENT, Corpus
from experiments.runner import train
from lkf_plugin.config import cpu_count, default_accelerator
from lkf_plugin.errors import UserError
from lkf_plugin.evaluate.cells import row_name
from lkf_plugin.evaluate.evaluation import Evaluation
from lkf_plugin.evaluate.quality import open_judge, quality_for
from lkf_plugin.evaluate.run_records import OWN
from lkf_plugin.progress import bar
from lkf_plugin.runs.load import load_run

MATCH = "matched"


def reproduce(
    corpora: Sequence[Corpus], tables: Sequence[str], out: Path, row: str | None, workers: int
) -> Path:
    """Trains and measures; returns the folder of the records.

    Args:
        corpora: of one scale.
        tables: names of ``plan.TABLES``.
        out: runs go to ``out/runs``, records to ``out/records``.
        row: only cells whose name holds this text.
        workers: processes side by side, each with an equal share of the cores.

    Raises:
        UserError: a judge that is not there, a training that failed, or a row that no table has.
    """
    records = out / "records"
    for corpus in corpora:
        if corpus.judge:  # told before hours of training
            open_judge(corpus.judge, default_accelerator())
    for corpus in corpora:
        models, jobs = work_of(corpus, tables, row)
        train([corpus.run(out, model, seed) for model, seed in models], workers)
        measure(corpus, jobs, out, records / corpus.name, workers)
    return records


def work_of(
    corpus: Corpus, tables: Sequence[str], row: str | None
) -> tuple[list[tuple[str, int]], list[Job]]:
    """((model, seed) to train, cells to measure): what ``reproduce`` runs and ``--print`` shows.

    Rounds of one run are trained by one command, so they stand once among the models.

    Raises:
        UserError: ``row`` is in no cell's name.
    """
    own = [table for table in tables if table in corpus.tables]
    others = [one for one in corpus.models if LATENT + one not in corpus.recipes]
    planned = jobs_of(
        own, corpus.grid, others, corpus.main_only, corpus.seeds, corpus.judge is None
    )
    jobs = [job for job in planned if job.model in corpus.models]
    if row:
        jobs = [job for job in jobs if row in job_name(job)]
    if not jobs:
        raise UserError(f"no cell of {', '.join(tables)} has {row} in its name.")
    runs = {(job.seed, corpus.recipe_of(job.model)): job.model for job in reversed(jobs)}
    order = list(corpus.recipes)
    wanted = sorted(runs, key=lambda one: (one[0], order.index(one[1])))
    return [(runs[one], one[0]) for one in wanted], jobs


def job_name(job: Job) -> str:
    """``M4.best_of_m.nelbo.J4``: what a row is asked for by."""
    row = row_name(job.settings()) if job.policy else job.kind
    end = "" if job.steps is None else f".J{job.steps}"
    return f"{job.name}.{row}{f'.{MATCH}' if job.kind == 'matched' else ''}{end}"


# --- measuring ---------------------------------------------------------------------------------


def measure(corpus: Corpus, jobs: Sequence[Job], out: Path, records: Path, workers: int) -> None:
    """Runs every cell, the cooled controls after all others; a bar over the cells."""
    device = default_accelerator()
    phases = (
        [job for job in jobs if job.kind != "matched"],
        [job for job in jobs if job.kind == "matched"],
    )
    with bar(title=f"cells of {corpus.name}", unit="cell", total=len(jobs), keep=True) as cells:
        for phase in phases:
            if workers == 1 or device != "cpu":
                for chunk in _chunks(phase, 1):
                    _measure_chunk(corpus, chunk, out, records, device, threads(1), cells.update)
                continue
            # fresh interpreters: a fork of a process with running threads may hang
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(workers, mp_context=context) as pool:
                pending: set[Future[int]] = {
                    pool.submit(
                        _measure_chunk, corpus, chunk, out, records, device, threads(workers)
                    )
                    for chunk in _chunks(phase, 4 * workers)
                }
                while pending:
                    done, pending = wait(pending, return_when=FIRST_COMPLETED)
                    for one in done:
                        cells.update(one.result())


def threads(workers: int) -> int:
    """Of each process: OMP_NUM_THREADS, or an equal share of the cores."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdecimal() else max(cpu_count() // workers, 1)


def _chunks(jobs: Sequence[Job], parts: int) -> list[list[Job]]:
    """Jobs of one model together, in up to ``parts`` shares a model, the longest first."""
    chunks = []
    for name in sorted({job.name for job in jobs}, key=lambda name: (name[0] != "M", name)):
        own = [job for job in jobs if job.name == name]
        own.sort(key=lambda job: -(job.steps or 0))
        chunks += [own[i::parts] for i in range(parts) if own[i::parts]]
    return chunks


def _measure_chunk(
    corpus: Corpus,
    jobs: Sequence[Job],
    out: Path,
    records: Path,
    device: str,
    num_threads: int,
    update: Callable[[int], Any] | None = None,
) -> int:
    """Runs some cells of one model; returns how many."""
    torch.set_num_threads(num_threads)
    evaluation = open_evaluation(corpus, jobs[0], out, records, device)
    for job in jobs:
        run_job(evaluation, corpus, job)
        if update:
            update(1)
    return len(jobs)


def open_evaluation(
    corpus: Corpus, job: Job, out: Path, records: Path, device: str = "cpu"
) -> Evaluation:
    """The trained model of a cell, its judge and the folder of its records."""
    folder = corpus.run(out, job.model, job.seed).folder
    run = load_run(folder, device, corpus.checkpoint(out, job.model, job.seed))
    quality = quality_for(
        run.config, run.prepared.tokenizer, corpus.judge, device, corpus.self_bleu
    )
    return Evaluation(
        run,
        quality,
        records,
        corpus.samples,
        batch_size=corpus.batch_size,
        judged_chains=corpus.judged_chains,
    )


def run_job(evaluation: Evaluation, corpus: Corpus, job: Job) -> None:
    """Runs one cell, if its record is not there."""
    if job.kind == "likelihood":
        evaluation.likelihood(corpus.sequences)
    elif job.kind == "information":
        assert job.steps is not None
        evaluation.information(job.steps)
    elif job.kind == "few_step":
        evaluation.few_step(corpus.grid, corpus.sequences)
    elif job.kind == "coupling":
        coupling(evaluation)
    elif job.kind == OWN:
        assert job.steps is not None
        evaluation.own(job.steps)
    elif job.kind == "ends":
        evaluation.ends()
    elif job.kind == "policy":
        assert job.steps is not None
        evaluation.policy(job.settings(), job.steps, attribute=_attributed(job))
    else:
        assert job.kind == "matched" and job.steps is not None
        target = evaluation.entropy_of(8, "best_of_m.nelbo", job.steps)
        if target is not None:
            evaluation.matched(job.settings(), job.steps, target, MATCH)


def _attributed(job: Job) -> bool:
    """Best-of-M by NELBO under independent noise, and its M = 1 control."""
    settings = job.settings()
    if job.policy == "best_of_n":
        return job.model == "M1"
    return row_name(settings) == "best_of_m.nelbo"

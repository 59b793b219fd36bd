"""Makes the paper's decoding tables: trains what is missing, measures what has no record yet.

Everything can be killed and started again: training goes on from its last checkpoint, and a cell
whose record fits is not run again.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

import torch
from tqdm.auto import tqdm

from experiments.paper.plan import Job, jobs_of
from experiments.paper.scales import Corpus
from lkf_plugin.config import cpu_count, default_accelerator
from lkf_plugin.errors import UserError
from lkf_plugin.evaluate.cells import row_name
from lkf_plugin.evaluate.evaluation import Evaluation
from lkf_plugin.evaluate.quality import open_judge, quality_for
from lkf_plugin.runs.load import load_run

ROOT = Path(__file__).resolve().parents[2]
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
        own = [table for table in tables if table in corpus.tables]
        jobs = [job for job in jobs_of(own, corpus.grid) if job.components in corpus.components]
        if row:
            jobs = [job for job in jobs if row in job_name(job)]
        if not jobs:
            raise UserError(f"no cell of {', '.join(tables)} has {row} in its name.")
        models = sorted({job.components for job in jobs} | ({1} if corpus.in_turn else set()))
        train(corpus, models, out, workers)
        measure(corpus, jobs, out, records / corpus.name, workers)
    return records


def job_name(job: Job) -> str:
    """``M8.best_of_m.nelbo.J4``: what a row is asked for by."""
    row = row_name(job.settings()) if job.policy else job.kind
    end = "" if job.steps is None else f".J{job.steps}"
    return f"M{job.components}.{row}{f'.{MATCH}' if job.kind == 'matched' else ''}{end}"


# --- training ----------------------------------------------------------------------------------


def train(corpus: Corpus, models: Sequence[int], out: Path, workers: int) -> None:
    """Completes every model's training; ``main.py`` skips those that are complete."""
    waves = [[1], [M for M in models if M > 1]] if corpus.in_turn else [list(models)]
    with tqdm(total=len(models), desc=f"training {corpus.name}", unit="model") as bar:
        for wave in waves:
            waiting = list(wave)
            while waiting:
                batch, waiting = waiting[:workers], waiting[workers:]
                running = {M: _start(corpus, M, out, len(batch)) for M in batch}
                try:
                    for M, process in running.items():
                        process.wait()
                        _check(process, corpus, M, out)
                        bar.update()
                except BaseException:
                    for process in running.values():
                        process.terminate()
                    raise


def _start(corpus: Corpus, M: int, out: Path, side_by_side: int) -> subprocess.Popen[bytes]:
    command = corpus.train_command(out.resolve(), M)
    tqdm.write("python " + " ".join(command))
    log = _log(corpus, M, out)
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.setdefault("OMP_NUM_THREADS", str(max(cpu_count() // side_by_side, 1)))
    with log.open("w", encoding="utf-8") as handle:
        return subprocess.Popen(
            [sys.executable, *command], cwd=ROOT, stdout=handle, stderr=handle, env=environment
        )


def _log(corpus: Corpus, M: int, out: Path) -> Path:
    return out / "runs" / corpus.name / f"train-M{M}.log"


def _check(process: subprocess.Popen[bytes], corpus: Corpus, M: int, out: Path) -> None:
    if process.returncode == 0:
        return
    log = _log(corpus, M, out)
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    raise UserError(
        f"training {corpus.name} M={M} failed ({lines[-1] if lines else 'no message'}): see {log}."
    )


# --- measuring ---------------------------------------------------------------------------------


def measure(corpus: Corpus, jobs: Sequence[Job], out: Path, records: Path, workers: int) -> None:
    """Runs every cell, the cooled controls after all others; a bar over the cells."""
    device = default_accelerator()
    phases = (
        [job for job in jobs if job.kind != "matched"],
        [job for job in jobs if job.kind == "matched"],
    )
    with tqdm(total=len(jobs), desc=f"cells of {corpus.name}", unit="cell") as bar:
        for phase in phases:
            if workers == 1 or device != "cpu":
                for chunk in _chunks(phase, 1):
                    _measure_chunk(corpus, chunk, out, records, device, cpu_count(), bar.update)
                continue
            threads = max(cpu_count() // workers, 1)
            # fresh interpreters: a fork of a process with running threads may hang
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(workers, mp_context=context) as pool:
                pending: set[Future[int]] = {
                    pool.submit(_measure_chunk, corpus, chunk, out, records, device, threads)
                    for chunk in _chunks(phase, 4 * workers)
                }
                while pending:
                    done, pending = wait(pending, return_when=FIRST_COMPLETED)
                    for one in done:
                        bar.update(one.result())


def _chunks(jobs: Sequence[Job], parts: int) -> list[list[Job]]:
    """Jobs of one model together, in up to ``parts`` shares a model, the longest first."""
    chunks = []
    for M in sorted({job.components for job in jobs}, reverse=True):
        own = [job for job in jobs if job.components == M]
        own.sort(key=lambda job: -(job.steps or 0))
        chunks += [own[i::parts] for i in range(parts) if own[i::parts]]
    return chunks


def _measure_chunk(
    corpus: Corpus,
    jobs: Sequence[Job],
    out: Path,
    records: Path,
    device: str,
    threads: int,
    update: Callable[[int], Any] | None = None,
) -> int:
    """Runs some cells of one model; returns how many."""
    torch.set_num_threads(threads)
    evaluation = open_evaluation(corpus, jobs[0].components, out, records, device)
    for job in jobs:
        run_job(evaluation, corpus, job)
        if update:
            update(1)
    return len(jobs)


def open_evaluation(
    corpus: Corpus, M: int, out: Path, records: Path, device: str = "cpu"
) -> Evaluation:
    """A trained model, its judge and the folder of its records."""
    run = load_run(corpus.run_folder(out, M), device)
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
        return job.components == 1
    return row_name(settings) == "best_of_m.nelbo"

"""Trains named runs, each by the command that a user would give, several side by side.

A run that is complete is taken as it is, one that was cut off goes on, and one that is not the run
that was asked for is refused. Each has its log beside its folder, ``train-NAME.log``.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from lkf_plugin.checkpoint_file import read_checkpoint
from lkf_plugin.config import cpu_count, register_resolvers
from lkf_plugin.config.derived import is_derived
from lkf_plugin.config.folder import config_folder
from lkf_plugin.config.paths import resolve_paths
from lkf_plugin.errors import UserError
from lkf_plugin.files import write_atomically
from lkf_plugin.metrics_file import STEP, curve, read_metrics
from lkf_plugin.progress import bar, say
from lkf_plugin.records.provenance import path_digest
from lkf_plugin.runs.settings import flatten, is_free, load_settings, plain
from lkf_plugin.train.checkpoint import BEST, LAST, lacks_validation

ROOT = config_folder().parent  # of the checkout, where main.py is
STARTED_FROM, TAUGHT_BY = "started_from.sha256", "taught_by.sha256"
TEACHER = "method.teacher"  # a place, which says nothing; the note beside the run does
LENGTH = "trainer.max_steps"  # a run of another length is another run
OWN_CALLBACKS = "experiments."  # they change what is trained
POLL = 0.5  # seconds between two looks at the running ones


@dataclass(frozen=True)
class Run:
    """A training run.

    Attributes:
        label: for bars and messages.
        folder: the run folder.
        overrides: of ``main.py``, apart from what the other attributes say.
        start: the run whose best checkpoint it starts from.
        teacher: the run whose model it learns from.
    """

    label: str
    folder: Path
    overrides: tuple[str, ...]
    start: Run | None = None
    teacher: Run | None = None

    @property
    def command(self) -> list[str]:
        """Arguments of the Python interpreter that train, or complete, the run."""
        begin = [f"init.from_checkpoint={self.start.best}"] if self.start else []
        begin += [f"{TEACHER}={self.teacher.handed_on}"] if self.teacher else []
        return ["main.py", *self.overrides, *begin, f"run_dir={self.folder.resolve()}"]

    @property
    def best(self) -> Path:
        """Its best checkpoint."""
        return self.folder.resolve() / "checkpoints" / BEST

    @property
    def handed_on(self) -> Path:
        """The checkpoint that teaches: its best, or a student's last.

        A student's validation is of another sampler than it was trained for.
        """
        return self.best if self.teacher is None else self.best.with_name(LAST)

    @property
    def needs(self) -> list[tuple[Run, Path, str]]:
        """(run, its checkpoint, name of the note) for all that must be there before."""
        started = [(self.start, self.start.best, STARTED_FROM)] if self.start else []
        taught = [(self.teacher, self.teacher.handed_on, TAUGHT_BY)] if self.teacher else []
        return started + taught

    @property
    def log(self) -> Path:
        """What its training printed."""
        return self.folder.parent / f"train-{self.folder.name}.log"

    @property
    def complete(self) -> bool:
        """Whether the last checkpoint stands at the run's last step, its validation seen."""
        settings, last = load_settings(self.folder), self.folder / "checkpoints" / LAST
        if settings is None or not last.is_file():
            return False
        checkpoint, trainer = read_checkpoint(last), settings["trainer"]
        if checkpoint["global_step"] < trainer["max_steps"]:
            return False
        steps = trainer["val_check_interval"], trainer["accumulate_grad_batches"]
        return trainer["limit_val_batches"] == 0 or not lacks_validation(checkpoint, *steps)


def compose_settings(overrides: Iterable[str]) -> DictConfig:
    """The settings that ``main.py`` makes of a command line."""
    register_resolvers()
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        return compose("config", overrides=list(overrides))


def train(runs: Sequence[Run], workers: int = 1) -> None:
    """Completes every run, and first the runs that they need.

    Args:
        runs: what is to be there at the end.
        workers: runs side by side, which share the CPU's threads.

    Raises:
        UserError: a training failed, or a folder holds another run.
    """
    waiting = _with_needed(runs)
    for run in waiting:
        _check_asked(run)
    complete = {run for run in waiting if run.complete}
    workers = max(min(workers, len(waiting) - len(complete)), 1)
    threads = max(cpu_count() // workers, 1)
    running: dict[Run, subprocess.Popen[bytes]] = {}
    with contextlib.closing(_Bars()) as bars:
        try:
            while waiting or running:
                for run in [one for one in waiting if _is_next(one, {*waiting, *running})]:
                    if run in complete or len(running) < workers:
                        waiting.remove(run)
                        _check_needed(run)
                        if run not in complete:
                            running[run] = _begin(run, threads)
                if not running:
                    continue
                time.sleep(POLL)
                ended = [run for run, process in running.items() if process.poll() is not None]
                bars.show(running)
                for run in ended:
                    _check_end(run, running.pop(run).returncode)
        except BaseException:
            for process in running.values():
                process.terminate()
            for process in running.values():
                process.wait()
            raise


def _with_needed(runs: Sequence[Run]) -> list[Run]:
    """The runs, each after those that it needs."""
    ordered: dict[Run, None] = {}
    for run in runs:
        ordered |= dict.fromkeys(_with_needed([needed for needed, _, _ in run.needs]))
        ordered[run] = None
    return list(ordered)


def _is_next(run: Run, unfinished: set[Run]) -> bool:
    return not any(needed in unfinished for needed, _, _ in run.needs)


# --- what is there -------------------------------------------------------------------------------


def _check_asked(run: Run) -> None:
    """Another run is neither taken for this one nor trained on."""
    for key, before, now in differences(load_settings(run.folder) or {}, run.overrides):
        raise UserError(
            f"the run in {run.folder} has {key}={before} and {now} was asked for: give another "
            "--out, or delete that folder."
        )


def _check_needed(run: Run) -> None:
    """Notes which checkpoints a new run needs; refuses a run that had others.

    A run that was brought in from elsewhere has no note and is taken as it is.
    """
    for _, checkpoint, name in run.needs:
        note, digest = run.folder / name, path_digest(checkpoint)
        if load_settings(run.folder) is None:
            write_atomically(note, digest + "\n")
        elif note.is_file() and note.read_text(encoding="utf-8").strip() != digest:
            did = "started from" if name == STARTED_FROM else "was taught by"
            raise UserError(
                f"the run in {run.folder} {did} another checkpoint than {checkpoint} is "
                "now: delete that folder to train it again."
            )


def differences(
    settings: Mapping[str, Any], overrides: Sequence[str]
) -> Iterator[tuple[str, Any, Any]]:
    """(key, value of a run, value asked for) where they differ in what decides the numbers.

    What follows from other settings or from the machine is passed over, and what only one of them
    has: the run may be of another version.
    """
    if not settings:
        return
    asked = compose_settings(overrides)
    resolve_paths(asked, ROOT)
    derived = {key for key in flatten(OmegaConf.to_container(asked)) if is_derived(asked, key)}
    before, now = flatten(settings), flatten(plain(asked))
    for key in sorted(before.keys() | now.keys()):
        pair = before.get(key), now.get(key)
        if pair[0] != pair[1] and any(str(one).startswith(OWN_CALLBACKS) for one in pair):
            yield key, *pair
    for key in sorted((before.keys() & now.keys()) - derived - {TEACHER}):
        if (key == LENGTH or not is_free(key)) and before[key] != now[key]:
            yield key, before[key], now[key]


# --- processes -----------------------------------------------------------------------------------


def _begin(run: Run, threads: int) -> subprocess.Popen[bytes]:
    run.log.parent.mkdir(parents=True, exist_ok=True)
    say("python " + " ".join(run.command))
    environment = {"OMP_NUM_THREADS": str(threads), **os.environ, "PYTHONPATH": str(ROOT)}
    with run.log.open("w", encoding="utf-8") as log:
        return subprocess.Popen(
            [sys.executable, *run.command], cwd=ROOT, stdout=log, stderr=log, env=environment
        )


def _check_end(run: Run, status: int) -> None:
    if status == 0:
        return
    lines = run.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    last = lines[-1] if lines else "no message"
    raise UserError(f"training {run.label} failed ({last}): see {run.log}.")


# --- bars ----------------------------------------------------------------------------------------


class _Bars:
    """A progress bar per run, read from its metrics.csv."""

    def __init__(self) -> None:
        self._bars: dict[Run, Any] = {}

    def show(self, runs: Iterable[Run]) -> None:
        """Where the runs stand now."""
        for run in runs:
            if run not in self._bars:
                self._bars[run] = bar(
                    title=f"training {run.label}", unit="step", line=len(self._bars), keep=True
                )
            own = self._bars[run]
            step, own.total, loss = progress(run.folder)
            if loss is not None:
                own.set_postfix_str(f"loss {loss:.3f}", refresh=False)
            own.update(step - own.n)

    def close(self) -> None:
        """Leaves them as they are."""
        for own in self._bars.values():
            own.close()


def progress(folder: Path) -> tuple[int, int | None, float | None]:
    """(step, steps in all, last loss) of a run."""
    settings, rows = load_settings(folder), read_metrics(folder / "metrics.csv").rows
    losses = curve(rows, "trainer/loss")
    return (
        int(rows[-1][STEP]) if rows else 0,
        settings["trainer"]["max_steps"] if settings else None,
        losses[-1][1] if losses else None,
    )

"""The command line: ``python main.py key=value ...``, or ``lkf`` once installed.

Mistakes are told in one sentence on stderr. Exit status: 0 done, 1 failed, 2 a mistake in what was
asked for, 130 interrupted, 143 stopped by SIGTERM after saving. LKF_TRACEBACK=1 shows where. A
sweep (``-m``) does all its jobs and ends with the status of those that failed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any, NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from lkf_plugin.config import register_resolvers, resolve_paths, validate
from lkf_plugin.config.folder import config_folder
from lkf_plugin.failures import foreseen
from lkf_plugin.ranks import is_first
from lkf_plugin.runs import sweep

# What a Ctrl-C leaves where nothing has been saved by it.
INTERRUPTED = {
    "train": "interrupted outside the training steps: nothing new to save, the same command begins "
    "again at the newest checkpoint if there is one",
    "ppl_eval": "interrupted: this evaluation has written nothing, the same command starts it anew",
    "sample_eval": "interrupted: unfinished samples are not kept, the same command draws them anew",
}


def run(config: DictConfig) -> Any:
    """Does what a composed configuration asks for."""
    from lkf_plugin.runs.preflight import check_before_work
    from lkf_plugin.runs.settings import keep_as_begun
    from lkf_plugin.upstream.select import select_host

    sweep.place_job(config)
    resolve_paths(
        config, HydraConfig.get().runtime.cwd if HydraConfig.initialized() else os.getcwd()
    )
    host = select_host(config)
    keep_as_begun(config)
    validate(config, host)
    check_before_work(config)
    sweep.claim_folders(config)
    if config.mode == "sample_eval":
        from lkf_plugin.modes.sample_eval import sample_eval

        return sample_eval(config, host)
    if host == "mdlm":
        from lkf_plugin.upstream.run import run as run_in_mdlm

        return run_in_mdlm(config)
    if config.mode == "ppl_eval":
        from lkf_plugin.modes.ppl_eval import ppl_eval

        return ppl_eval(config)
    from lkf_plugin.modes.train import train

    return train(config)


def main() -> None:
    """Entry point of ``main.py`` and of the console script ``lkf``."""
    register_resolvers()
    # Hydra would print its own report and leave; we want its exceptions.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    entry = hydra.main(version_base="1.3", config_path=str(config_folder()), config_name="config")
    with _noted_interrupts(), _plain_words():
        entry(_job)()
    _end_of_sweep()


def _job(config: DictConfig) -> None:
    """One run. It leaves by ``SystemExit``, which Hydra lets through without a report.

    A job of a sweep in this process leaves so only when it is told to stop; a failure is noted, and
    the next job begins.
    """
    mode = config.get("mode")
    with _plain_words(mode if isinstance(mode, str) else None):
        job = sweep.begin_job()
        try:
            run(config)
        except Exception as error:
            if job is None or _interrupted:
                raise
            if os.environ.get("LKF_TRACEBACK") == "1" or foreseen(error) is None:
                traceback.print_exc()
            first = (str(error).strip() or "no message").splitlines()[0]
            job.sentence, job.status = foreseen(error) or (f"{type(error).__name__}: {first}", 1)
            _tell(f"error: job {job.number} ({job.overrides}): {job.sentence}")


def _end_of_sweep() -> None:
    """Says what became of a sweep's jobs, if there was one; leaves with a status if any failed."""
    jobs = sweep.finished_jobs()
    if not jobs:
        return
    failed = [job for job in jobs if job.status]
    if failed:
        each = "; ".join(f"job {job.number} ({job.overrides}): {job.sentence}" for job in failed)
        _tell(f"error: {len(failed)} of {len(jobs)} jobs failed: {each}")
        sys.exit(2 if all(job.status == 2 for job in failed) else 1)
    folder = sweep.common_folder(jobs)
    print(f"{len(jobs)} jobs done; side by side: python scripts/report.py {folder}", flush=True)


_interrupted = False  # Ctrl-C was pressed outside the training steps


@contextlib.contextmanager
def _noted_interrupts() -> Iterator[None]:
    """Remembers a Ctrl-C, because a library may turn its exception into another one.

    A second one ends the process at once.
    """
    global _interrupted

    def note(signum: int, frame: FrameType | None) -> None:
        global _interrupted
        _interrupted = True
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        raise KeyboardInterrupt

    _interrupted = False
    before = signal.getsignal(signal.SIGINT)
    ours = before is signal.default_int_handler
    ours = ours and threading.current_thread() is threading.main_thread()
    if ours:
        signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _plain_words(mode: str | None = None) -> Iterator[None]:
    """Turns every foreseen way to fail into a sentence and a status; bugs keep their traceback."""
    interrupted = INTERRUPTED.get(mode or "", "interrupted")
    try:
        yield
    except KeyboardInterrupt:
        _leave(interrupted, 130)
    except SystemExit as stop:
        if isinstance(stop.__context__, KeyboardInterrupt):  # Lightning's way to leave
            _leave(interrupted, 130)
        if sentence := getattr(stop, "sentence", None):
            _tell(sentence)
            sys.exit(stop.code)
        raise
    except Exception as error:
        if _interrupted:
            _leave(interrupted, 130)
        words = foreseen(error)
        if words is None:
            raise
        _leave(*words)


def _leave(sentence: str, status: int) -> NoReturn:
    if os.environ.get("LKF_TRACEBACK") == "1":
        traceback.print_exc()
    _tell(f"error: {sentence}")
    sys.exit(status)


def _tell(sentence: str) -> None:
    """Writes to stderr; of several processes on a machine, the first one does."""
    if is_first():
        print(sentence, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

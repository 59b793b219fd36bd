"""Starts command lines for kill_runs.py by forking, so that torch is imported only once.

Reads one JSON object per line and answers with one line:

* ``{"args": [...], "log": path, "env": {...}}`` starts the command line; answers its process id
* ``{"wait": pid}`` waits for its end; answers the exit status, negative for a signal
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import lightning as L
from lightning.pytorch.utilities import rank_zero_only

import lkf_plugin.cli
import lkf_plugin.methods.lkf
import lkf_plugin.modes.ppl_eval
import lkf_plugin.modes.sample_eval
import lkf_plugin.modes.train  # noqa: F401

PHASES = "KILL_RUNS_PHASES"  # where a run tells which phase it enters


def tell(phase: str) -> None:
    """Writes a phase into the pipe of the one who watches, if somebody does."""
    if path := os.environ.get(PHASES):
        pipe = os.open(path, os.O_WRONLY)
        os.write(pipe, f"{phase}\n".encode())
        os.close(pipe)


class TellPhases(L.Callback):
    """Tells when a run trains, validates, samples and saves."""

    def setup(self, trainer: L.Trainer, pl_module: Any, stage: str) -> None:
        draw = pl_module.decode_network

        def sample(*args: Any, **kwargs: Any) -> Any:
            if not trainer.sanity_checking:
                tell("sampling")
            return draw(*args, **kwargs)

        pl_module.decode_network = sample

    def on_train_batch_start(self, trainer: L.Trainer, *args: Any) -> None:
        tell("training")

    def on_validation_start(self, trainer: L.Trainer, *args: Any) -> None:
        if not trainer.sanity_checking:
            tell("validation")

    def on_save_checkpoint(self, trainer: L.Trainer, *args: Any) -> None:
        tell("saving")


def child(args: list[str], log: str, env: dict[str, str]) -> None:
    """The command line in a forked process; never returns."""
    os.environ.update(env)
    rank_zero_only.rank = int(env.get("LOCAL_RANK", "0"))  # type: ignore[attr-defined]  # was read at import
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.default_int_handler if one == signal.SIGINT else signal.SIG_DFL)
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    sys.argv = ["lkf", *args]
    status = 0
    try:
        tell("start")
        lkf_plugin.cli.main()
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 1
    except KeyboardInterrupt:
        status = 130
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    os._exit(status)


def main() -> None:
    """Serves until its input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            answer = os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])
        else:
            answer = os.fork()
            if answer == 0:
                child(**request)
        print(answer, flush=True)


if __name__ == "__main__":
    main()

"""SIGTERM and Ctrl-C ask a run to stop; it does so between two batches, after saving.

So do SIGUSR1 and SIGUSR2 under a launcher: SLURM sends one before the time is up, and submitit's
own handler of it requeues the job. That handler has its turn once the run is saved.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType
from typing import Any

from lkf_plugin.ranks import is_first

SIGNALS = (signal.SIGTERM, signal.SIGINT)
LAUNCHERS = (signal.SIGUSR1, signal.SIGUSR2)


class Preempted(SystemExit):
    """A signal arrived and the run is saved: leaves with status 128 + signal (143 or 130)."""

    def __init__(self, sentence: str, signum: int = signal.SIGTERM) -> None:
        super().__init__(128 + signum)
        self.sentence = sentence


class StopSignals:
    """Remembers that one of the signals arrived, and says at once what will follow.

    After the first SIGINT the system's own handling is back, so that a second one ends the
    process at once, even in the middle of a long operation.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}
        self._batch_start: float | None = None
        self._batch_seconds: float | None = None

    def listen(self) -> None:
        """Takes the signals over, once; only the main thread can.

        A launcher's signal is heard where somebody handles it already, and in a job of SLURM.
        """
        if self._before or threading.current_thread() is not threading.main_thread():
            return
        in_job = "SLURM_JOB_ID" in os.environ
        launchers = (one for one in LAUNCHERS if in_job or callable(signal.getsignal(one)))
        for one in (*SIGNALS, *launchers):
            self._before[one] = signal.signal(one, self._receive)

    def hand_over(self) -> None:
        """Gives the launcher's own handler its turn, if it was its signal; that may leave."""
        signum = self.received
        handler = self._before.get(signum) if signum in LAUNCHERS else None
        if callable(handler):
            self.release()
            handler(signum, None)

    def release(self) -> None:
        """Gives the signals back."""
        before, self._before = self._before, {}
        for one, handler in before.items():
            if handler is not None:
                signal.signal(one, handler)

    def start_batch(self) -> None:
        """Notes that a training batch begins, for the time that a stop has to wait."""
        now = time.monotonic()
        if self._batch_start is not None:
            self._batch_seconds = now - self._batch_start
        self._batch_start = now

    def forget_batch(self) -> None:
        """Something else than a training batch comes between."""
        self._batch_start = None

    def _receive(self, signum: int, frame: FrameType | None) -> None:
        first = self.received is None
        self.received = self.received or signal.Signals(signum)
        again = ""
        if signum == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            again = "; a second Ctrl-C leaves at once, without saving"
        if (first or again) and is_first():
            seconds = self._batch_seconds
            wait = "" if seconds is None else f" (the last one took {seconds:.1f} s)"
            name = signal.Signals(signum).name
            line = f"\n{name}: the run is saved after the batch in hand{wait}{again}\n"
            os.write(2, line.encode())

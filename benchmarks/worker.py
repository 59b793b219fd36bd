"""A process for each variant: its repetitions, and the memory that one of them needs.

Variants that share a process share its allocator, and what one has freed changes what the next one
costs. So each has a process, which waits while the others run.
"""

from __future__ import annotations

import contextlib
import json
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from timing import Seconds, note, timed

FACTS = "facts"
SERVE = "--serve"


class Worker:
    """``script --serve ARGUMENT``, which builds one variant and answers through ``serve``."""

    def __init__(self, script: str, argument: str) -> None:
        self.command = [str(Path(script).resolve()), SERVE, argument]
        self.process = subprocess.Popen(
            [sys.executable, *self.command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._read()

    def __call__(self, number: int) -> Seconds:
        """The repetition of a round."""
        return Seconds(**self._ask(str(number)))

    def facts(self) -> dict[str, Any]:
        """What else it measured: ``peak_mb`` of its first repetition, and its own facts."""
        return self._ask(FACTS)

    def close(self) -> None:
        """Ends the process."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait()

    def _ask(self, request: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        print(request, file=self.process.stdin, flush=True)
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            command = " ".join(self.command)
            raise RuntimeError(f"{command} ended ({self.process.wait()}): its message is above")
        return json.loads(line)


@contextlib.contextmanager
def workers(script: str, arguments: Mapping[str, str]) -> Iterator[dict[str, Worker]]:
    """A worker for each variant, by name."""
    started: dict[str, Worker] = {}
    try:
        for name, argument in arguments.items():
            started[name] = Worker(script, argument)
            note(f"built: {name}")
        yield started
    finally:
        for worker in started.values():
            worker.close()


def serve(run: Callable[[], Any], facts: Callable[[], dict[str, Any]] = dict) -> None:
    """The worker's side: answers until its input ends.

    Args:
        run: one repetition.
        facts: what else to tell, asked for after the repetitions.
    """
    answers, idle, peak = sys.stdout, peak_mb(), 0.0

    def answer(facts: dict[str, Any]) -> None:
        print(json.dumps(facts), file=answers, flush=True)

    with contextlib.redirect_stdout(sys.stderr):
        answer({})
        repeat = timed(run)
        for request in map(str.strip, sys.stdin):
            if request == FACTS:
                answer({"peak_mb": peak, **facts()})
                continue
            answer(repeat(int(request))._asdict())
            peak = peak or peak_mb() - idle


def peak_mb() -> float:
    """Largest resident set of this process so far, MB.

    Not by ``getrusage`` where /proc tells it: that number starts at the parent's.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

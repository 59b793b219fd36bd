"""Kills runs at random moments, starts them again by the same command, and compares the end.

    python benchmarks/kill_runs.py --kills 100
    python benchmarks/kill_runs.py --kills 100 --records docs/records/reliability \
        --page docs/reliability.md

A tiny mixture is trained, validated, sampled and saved, by one process and by two (DDP over gloo).
SIGTERM, SIGINT and SIGKILL hit it in every phase, at a random one of the phase's occurrences and
after a random delay; with two processes they hit both or one of them. The run is started again by
the same command until it is done. Then every checkpoint (weights, averages, optimizer, counters),
metrics.csv and all samples must equal an unbroken run's, bit for bit. The same seed plans the same
kills; the moments within a phase are the machine's.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import datetime
import itertools
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from experiments.pages.blocks import fill_file
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.markdown import markdown_table
from lkf_plugin.records.provenance import code_version, library_versions, machine
from lkf_plugin.records.record import Record
from lkf_plugin.records.store import write_record

HERE = Path(__file__).resolve().parent
SIGNALS = ("TERM", "INT", "KILL")
IN_TRAINING = {"start": 1.2, "training": 0.02, "validation": 0.03, "sampling": 0.06, "saving": 0.02}
PHASES = {**IN_TRAINING, "sample_eval": 1.2}  # longest delay after the phase begins, in seconds
# How a stopped process may end: by our handlers, or by the signal before they are set.
STATUSES = {"TERM": {143, -15}, "INT": {130, -2}, "KILL": {-9}}
GRACE, HANGS = 8.0, 120.0  # seconds for the others when one process is gone, and for any end
TINY = (
    "host=builtin",
    "model=lkf-tiny",
    "loss=mixture",
    "model.num_components=2",
    "model.hidden_size=16",
    "model.n_blocks=2",
    "model.n_heads=2",
    "model.cond_dim=8",
    "model.dropout=0.1",
    "data.train_sequences=40",
    "data.valid_sequences=12",
    "loader.global_batch_size=8",
    "loader.eval_batch_size=4",
    "loader.num_workers=0",
    "trainer.accelerator=cpu",
    "trainer.precision=32-true",
    "trainer.max_steps=12",
    "trainer.val_check_interval=8",  # every four steps of two micro-batches
    "trainer.log_every_n_steps=1",
    "trainer.num_sanity_val_steps=1",
    "checkpointing.every_n_steps=3",
    "lr_scheduler.num_warmup_steps=5",
    "sampling.steps=4",
    "eval.generate_samples=true",
    "decode.score_draws=1",
    "+callbacks.phases._target_=kill_server.TellPhases",
)


@dataclass
class Kill:
    """One planned kill, and what came of it.

    Attributes:
        name: of the signal.
        phase: in which it arrives.
        processes: of the run.
        target: ``all`` processes of the run, or the rank of one.
        occurrence: how often the phase has begun by then.
        delay: seconds after that.
        killed: whether the run ended by it (it may have been done already).
        problem: what went wrong when it ended or afterwards; empty if nothing did.
    """

    name: str
    phase: str
    processes: int
    target: str
    occurrence: int
    delay: float
    killed: bool = False
    problem: str = ""


def plan(kills: int, seed: int) -> list[Kill]:
    """Kills over all cells (signal, phase, processes) in turn, in random order."""
    draw = random.Random(seed)
    # sample_eval runs in one process
    cells = [
        cell
        for cell in itertools.product(SIGNALS, PHASES, (1, 2))
        if cell[1:] != ("sample_eval", 2)
    ]
    planned = []
    for round_start in range(0, kills, len(cells)):
        draw.shuffle(cells)
        for name, phase, processes in cells[: kills - round_start]:
            target = draw.choice(("all", "all", "0", "1")) if processes == 2 else "all"
            occurrence = 1 if phase in ("start", "sample_eval") else draw.randint(1, 3)
            delay = draw.random() * PHASES[phase]
            planned.append(Kill(name, phase, processes, target, occurrence, delay))
    return planned


class Server:
    """Starts runs by forking (kill_server.py)."""

    def __init__(self, folder: Path) -> None:
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join((str(HERE.parent), str(HERE))),
            "LKF_CACHE": str(folder / "cache"),
        }
        environment.pop("LOCAL_RANK", None)
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "kill_server.py")],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, **request: Any) -> int:
        """One request and its answer."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def close(self) -> None:
        """Ends it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)


class Attempt:
    """One start of a run's command, on one or two processes.

    Args:
        server: that starts it.
        args: the command line.
        processes: how many.
        folder: for its pipe and log.
    """

    def __init__(self, server: Server, args: list[str], processes: int, folder: Path) -> None:
        self.server = server
        self.pipe = folder / "phases"
        self.pipe.unlink(missing_ok=True)
        os.mkfifo(self.pipe)
        # opened for writing, too, so that it never ends while it is read
        self.reader = os.open(self.pipe, os.O_RDWR | os.O_NONBLOCK)
        self.log = folder / "log.txt"
        self.log.write_text("")
        port = _free_port() if processes > 1 else 0
        self.pids = []
        for rank in range(processes):
            env = {}
            if processes > 1:
                ranks = {"LOCAL_RANK": rank, "NODE_RANK": 0, "WORLD_SIZE": processes}
                env = {key: str(value) for key, value in ranks.items()}
                env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            if rank == 0:
                env["KILL_RUNS_PHASES"] = str(self.pipe)
            self.pids.append(server.ask(args=args, log=str(self.log), env=env))

    def wait_for(self, phase: str, occurrence: int) -> bool:
        """Until a phase has begun so often; False if the run ended before."""
        seen, text, end = 0, "", time.monotonic() + HANGS
        while time.monotonic() < end:
            if select.select([self.reader], [], [], 0.1)[0]:
                text += os.read(self.reader, 65536).decode()
                *lines, text = text.split("\n")
                seen += lines.count(phase)
                if seen >= occurrence:
                    return True
            elif any(_ended(pid) for pid in self.pids):
                return False
        return False

    def send(self, name: str, target: str) -> None:
        """Sends a signal to all processes or to one rank."""
        for rank, pid in enumerate(self.pids):
            if target in ("all", str(rank)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, getattr(signal, f"SIG{name}"))

    def end(self) -> tuple[list[int], bool]:
        """Exit statuses, and whether a process had to be ended because it did not end itself.

        Like any launcher, this gives the others a few seconds when one process is gone.
        """
        limit, gone = time.monotonic() + HANGS, None
        while not all(_ended(pid) for pid in self.pids) and time.monotonic() < limit:
            if gone is None and any(_ended(pid) for pid in self.pids):
                gone = time.monotonic()
                limit = min(limit, gone + GRACE)
            time.sleep(0.02)
        left = [pid for pid in self.pids if not _ended(pid)]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        statuses = [self.server.ask(wait=pid) for pid in self.pids]
        os.close(self.reader)
        return statuses, len(left) == len(self.pids)


def _ended(pid: int) -> bool:
    """Whether a process is gone or waits to be collected."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in ("Z", "X")


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def command(run_dir: Path, processes: int) -> list[str]:
    """The training command of a run."""
    sizes = (f"trainer.devices={processes}", f"loader.batch_size={4 // processes}")
    return [*TINY, *sizes, f"run_dir={run_dir}"]


def evaluation(run_dir: Path) -> list[str]:
    """The command that draws samples of a trained run."""
    return [*command(run_dir, 1), "mode=sample_eval"]


def kill_once(server: Server, kill: Kill, args: list[str], folder: Path) -> None:
    """Starts a command and carries the kill out; fills ``killed`` and ``problem``."""
    attempt = Attempt(server, args, 1 if kill.phase == "sample_eval" else kill.processes, folder)
    phase = "start" if kill.phase == "sample_eval" else kill.phase
    if attempt.wait_for(phase, kill.occurrence):
        time.sleep(kill.delay)
        attempt.send(kill.name, kill.target)
    statuses, hung = attempt.end()
    if set(statuses) == {0}:
        return  # done before the signal, or before the phase came so often
    kill.killed = True
    first = 0 if kill.target == "all" else int(kill.target)
    if hung or statuses[first] not in {0, *STATUSES[kill.name]}:
        tail = attempt.log.read_text(errors="replace")[-2000:]
        kill.problem = f"ended with {statuses}{' after hanging' if hung else ''}: {tail}"


def finish(server: Server, args: list[str], processes: int, folder: Path) -> str:
    """Starts a command and lets it run to its end; what went wrong, or nothing."""
    attempt = Attempt(server, args, processes, folder)
    statuses, hung = attempt.end()
    if hung or any(statuses):
        return f"resumed run ended with {statuses}: {attempt.log.read_text()[-2000:]}"
    return ""


def difference(a: Path, b: Path) -> str:
    """The first file that differs between two run folders, or nothing."""
    for pattern in ("metrics.csv", "checkpoints/*.ckpt", "samples/*.txt", "samples.jsonl"):
        names = [{path.name for path in folder.glob(pattern)} for folder in (a, b)]
        if names[0] != names[1] or not names[0]:
            return f"{pattern}: {sorted(names[0])} and {sorted(names[1])}"
        for name in sorted(names[0]):
            one, other = (folder / Path(pattern).parent / name for folder in (a, b))
            if one.suffix == ".ckpt":
                where = _unequal(*(torch.load(p, weights_only=True) for p in (one, other)))
                if where is not None:
                    return f"{name}: {where or 'its whole'}"
            elif one.read_bytes() != other.read_bytes():
                return name
    return ""


def _unequal(a: Any, b: Any, where: str = "") -> str | None:
    """Where two checkpoints differ in a bit; None if nowhere."""
    if type(a) is not type(b):
        return where
    if isinstance(a, torch.Tensor):
        same = a.dtype == b.dtype and a.shape == b.shape
        same = same and a.numpy().tobytes() == b.numpy().tobytes()
        return None if same else where
    if isinstance(a, dict):
        if list(a) != list(b):
            return where
        pairs: Iterator[tuple[Any, Any, Any]] = ((key, a[key], b[key]) for key in a)
    elif isinstance(a, list | tuple):
        if len(a) != len(b):
            return where
        pairs = ((i, x, y) for i, (x, y) in enumerate(zip(a, b, strict=True)))
    else:
        return None if a == b else where
    parts = (_unequal(x, y, f"{where}/{key}") for key, x, y in pairs)
    return next((part for part in parts if part is not None), None)


def carry_out(kills: list[Kill], folder: Path, per_run: int = 6) -> int:
    """Carries a plan out in a scratch folder, each number of processes beside the other.

    Returns:
        How many broken runs were compared.
    """
    counts = sorted({kill.processes for kill in kills})
    with concurrent.futures.ThreadPoolExecutor(len(counts)) as pool:
        parts = [pool.submit(_carry_out, kills, folder, count, per_run) for count in counts]
        return sum(part.result() for part in parts)


def _carry_out(kills: list[Kill], parent: Path, processes: int, per_run: int) -> int:
    """The kills of runs on so many processes."""
    folder = parent / f"{processes}-processes"
    folder.mkdir()
    server = Server(folder)
    runs = 0
    try:
        unbroken = folder / "unbroken"
        for args, count in ((command(unbroken, processes), processes), (evaluation(unbroken), 1)):
            if problem := finish(server, args, count, folder):
                raise RuntimeError(f"the unbroken run failed: {problem}")
        queue = [kill for kill in kills if kill.processes == processes]
        while queue:
            broken = folder / f"broken-{runs}"
            runs += 1
            chosen = _one_run(server, queue, broken, processes, folder, per_run)
            problem = "" if not chosen else difference(unbroken, broken)
            for kill in chosen:
                kill.problem = kill.problem or problem
            print(
                f"run {runs} on {processes} process(es): "
                f"{sum(kill.killed for kill in chosen)} kills, {problem or 'equal'}",
                flush=True,
            )
    finally:
        server.close()
    return runs


def _one_run(
    server: Server, queue: list[Kill], broken: Path, processes: int, folder: Path, per_run: int
) -> list[Kill]:
    """Trains and samples one run under some of the queue's kills; returns those that hit it."""
    hit: list[Kill] = []
    missed: list[Kill] = []
    for stage, args, count in (
        ("training", command(broken, processes), processes),
        ("sample_eval", evaluation(broken), 1),
    ):
        mine = [kill for kill in queue if (kill.phase == "sample_eval") is (stage == "sample_eval")]
        done = False
        for kill in mine[: per_run if stage == "training" else 2]:
            kill_once(server, kill, args, folder)
            if kill.problem:
                print(f"{kill.name} in {kill.phase}: {kill.problem}", flush=True)
            if not kill.killed:  # the command was done: the kill waits for another run
                done = True
                missed.append(kill)
                break
            queue.remove(kill)
            hit.append(kill)
        if not done and (problem := finish(server, args, count, folder)):
            for kill in hit:
                kill.problem = kill.problem or problem
    for kill in missed:  # at the end, and a little earlier in its phase
        queue.remove(kill)
        kill.occurrence, kill.delay = max(1, kill.occurrence - 1), kill.delay * 0.7
        queue.append(kill)
    return hit


def record(kills: list[Kill], runs: int, seed: int, seconds: float) -> Record:
    """The result, a record of kind ``kills``."""
    cells: dict[tuple[str, int, str], Counter[str]] = {}
    for kill in kills:
        cell = cells.setdefault((kill.phase, kill.processes, kill.name), Counter())
        cell["killed"] += kill.killed
        cell["equal"] += kill.killed and not kill.problem
    return Record(
        kind="kills",
        name="kills",
        subject={"run": list(TINY)},
        settings={"kills": len(kills), "seed": seed},
        metrics={
            "killed": Estimate(sum(cell["killed"] for cell in cells.values())),
            "equal": Estimate(sum(cell["equal"] for cell in cells.values())),
            "runs": Estimate(runs),
            "seconds": Estimate(round(seconds)),
        },
        series={
            "cells": [
                {"phase": phase, "processes": processes, "signal": name, **count}
                for (phase, processes, name), count in sorted(cells.items())
            ],
            "problems": [
                {"signal": k.name, "phase": k.phase, "processes": k.processes, "problem": k.problem}
                for k in kills
                if k.problem
            ],
        },
        labels={"date": datetime.date.today().isoformat()},
        code=code_version(),
        libraries=library_versions(),
        machine=machine(),
    )


def table(result: Record) -> str:
    """The record as Markdown: of each cell, how many of its kills ended equal."""
    cells = {(c["phase"], c["processes"], c["signal"]): c for c in result.series["cells"]}
    head = [f"{name}, {count} process{'es' * (count > 1)}" for count in (1, 2) for name in SIGNALS]
    rows = []
    for phase in PHASES:
        row = []
        for count, name in itertools.product((1, 2), SIGNALS):
            cell = cells.get((phase, count, name))
            row.append("" if cell is None else f"{cell['equal']} of {cell['killed']}")
        rows.append([phase, *row])
    return (
        f"{markdown_table(['killed while', *head], rows)}\n\n"
        f"{result.value('equal')} of {result.value('killed')} kills ended bit-equal, in "
        f"{result.value('runs')} runs ({result.value('seconds')} s on {result.machine['cpu']}, "
        f"torch {result.libraries['torch']}, seed {result.setting('seed')}, "
        f"{result.labels['date']})."
    )


def main() -> int:
    """Runs the command; status 1 if a run did not end equal."""
    parser = argparse.ArgumentParser(description="Kills runs and compares their end.")
    parser.add_argument("--kills", type=int, default=20, help="how many (default 20)")
    parser.add_argument("--seed", type=int, default=0, help="of the plan")
    parser.add_argument("--records", type=Path, help="folder for the record of the result")
    parser.add_argument("--page", type=Path, help="page with the marker <!-- table: kills -->")
    parser.add_argument("--keep", type=Path, help="an empty folder for the runs, which then stay")
    args = parser.parse_args()
    kills = plan(args.kills, args.seed)
    start = time.monotonic()
    with contextlib.ExitStack() as stack:
        if args.keep:
            args.keep.mkdir(parents=True)
        folder = args.keep or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="kills-"))
        )
        runs = carry_out(kills, folder.resolve())
    result = record(kills, runs, args.seed, time.monotonic() - start)
    if args.records:
        write_record(result, args.records)
    if args.page:
        fill_file(args.page, {"kills": table(result)})
    print(table(result))
    for one in result.series["problems"]:
        print(one, file=sys.stderr)
    return 1 if result.series["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())

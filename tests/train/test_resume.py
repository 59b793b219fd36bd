"""A run that is killed and started again ends as one that was not, bit for bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
TINY = [
    "host=builtin",
    "model.hidden_size=16",
    "model.n_blocks=2",
    "model.n_heads=2",
    "model.cond_dim=8",
    "model.dropout=0.1",
    "data.train_sequences=40",
    "data.valid_sequences=12",
    "loader.global_batch_size=8",
    "loader.batch_size=4",  # two micro-batches a step
    "loader.num_workers=0",
    "trainer.accelerator=cpu",
    "trainer.devices=1",
    "trainer.precision=32-true",
    "trainer.max_steps=12",
    "trainer.val_check_interval=8",  # every four steps
    "trainer.log_every_n_steps=1",
    "checkpointing.every_n_steps=3",
    "lr_scheduler.num_warmup_steps=5",
]


Lkf = Callable[..., subprocess.CompletedProcess[str]]


def environment(folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(Path(__file__).parent))),
        "LKF_CACHE": str(folder / "cache"),
    }


def main_py(*overrides: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """``python main.py`` as a user types it."""
    command = [sys.executable, str(ROOT / "main.py"), *overrides]
    return subprocess.run(
        command, cwd=cwd, env=environment(cwd), capture_output=True, text=True, check=False
    )


@pytest.fixture
def lkf(tmp_path: Path) -> Iterator[Lkf]:
    """The same command in a process of its own, forked from one that has its imports done."""
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).parent / "fork_server.py")],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdin is not None and server.stdout is not None

    def call(*overrides: str) -> subprocess.CompletedProcess[str]:
        out, err = tmp_path / "out.txt", tmp_path / "err.txt"
        request = {"args": overrides, "out": str(out), "err": str(err)}
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        status = int(server.stdout.readline())
        return subprocess.CompletedProcess(overrides, status, out.read_text(), err.read_text())

    yield call
    server.stdin.close()
    assert server.wait(timeout=60) == 0


def signal_at(step: int, hook: str, name: str) -> list[str]:
    keys = {"_target_": "signal_at.SignalAt", "step": step, "hook": hook, "name": name}
    return [f"+callbacks.signal.{key}={value}" for key, value in keys.items()]


def assert_same(a: Any, b: Any, where: str = "") -> None:
    if isinstance(a, torch.Tensor):
        assert torch.equal(a, b), where
    elif isinstance(a, dict):
        assert a.keys() == b.keys(), where
        for key in a:
            assert_same(a[key], b[key], f"{where}/{key}")
    elif isinstance(a, list | tuple):
        assert len(a) == len(b), where
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_same(x, y, f"{where}/{i}")
    else:
        assert a == b, where


def final(folder: Path) -> dict[str, Any]:
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)


def test_killed_and_resumed_equals_unbroken(tmp_path: Path, lkf: Lkf) -> None:
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    result = main_py(*TINY, f"run_dir={unbroken}", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    again = [*TINY, f"run_dir={broken}"]
    for step, hook, name, status in (
        (2, "on_train_batch_end", "SIGTERM", 143),  # between two saves
        (4, "on_validation_batch_end", "SIGTERM", 143),  # in the middle of a validation
        (8, "on_validation_epoch_end", "SIGKILL", -9),  # near the end of a validation
        (10, "on_train_batch_end", "SIGKILL", -9),  # in a step, two steps after a save
    ):
        result = lkf(*again, *signal_at(step, hook, name))
        assert result.returncode == status, (step, hook, result.stderr)
        if status == 143:
            assert f"SIGTERM: saved step {step}" in result.stderr
            assert "Traceback" not in result.stderr
    assert lkf(*again).returncode == 0
    assert (broken / "metrics.csv").read_bytes() == (unbroken / "metrics.csv").read_bytes()
    assert_same(final(broken), final(unbroken))
    for name in ("best.ckpt", "step-12.ckpt"):
        assert_same(
            torch.load(broken / "checkpoints" / name, weights_only=True),
            torch.load(unbroken / "checkpoints" / name, weights_only=True),
        )
    # it is complete now, and says so
    result = lkf(*again)
    assert result.returncode == 0 and "this run is complete" in result.stdout
    assert (broken / "metrics.csv").read_bytes() == (unbroken / "metrics.csv").read_bytes()
    # other settings are refused
    result = lkf(*again, "optim.lr=1e-3")
    assert result.returncode == 2
    assert "optim.lr was 0.0003" in result.stderr and "Traceback" not in result.stderr


@pytest.mark.slow
def test_two_processes_killed_and_resumed(tmp_path: Path) -> None:
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    two = [*TINY, "trainer.devices=2", "trainer.max_steps=8", "trainer.val_check_interval=4"]
    assert main_py(*two, f"run_dir={unbroken}", cwd=tmp_path).returncode == 0
    again = [*two, f"run_dir={broken}"]
    result = main_py(*again, *signal_at(5, "on_train_batch_end", "SIGTERM"), cwd=tmp_path)
    assert result.returncode == 143 and result.stderr.count("SIGTERM: saved step 5") == 1
    assert main_py(*again, cwd=tmp_path).returncode == 0
    assert (broken / "metrics.csv").read_bytes() == (unbroken / "metrics.csv").read_bytes()
    assert_same(final(broken), final(unbroken))

"""A run that is killed and started again ends as one that was not, bit for bit."""

from __future__ import annotations

import os
import subprocess
import sys
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


def lkf(*overrides: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(Path(__file__).parent))),
        "LKF_CACHE": str(cwd / "cache"),
    }
    command = [sys.executable, str(ROOT / "main.py"), *overrides]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)


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


def test_killed_and_resumed_equals_unbroken(tmp_path: Path) -> None:
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    result = lkf(*TINY, f"run_dir={unbroken}", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    again = [*TINY, f"run_dir={broken}"]
    for step, hook, name, status in (
        (2, "on_train_batch_end", "SIGTERM", 143),  # between two saves
        (4, "on_validation_batch_end", "SIGTERM", 143),  # in the middle of a validation
        (8, "on_validation_epoch_end", "SIGKILL", -9),  # near the end of a validation
        (10, "on_train_batch_end", "SIGKILL", -9),  # in a step, two steps after a save
    ):
        result = lkf(*again, *signal_at(step, hook, name), cwd=tmp_path)
        assert result.returncode == status, (step, hook, result.stderr)
        if status == 143:
            assert f"SIGTERM: saved step {step}" in result.stderr
            assert "Traceback" not in result.stderr
    assert lkf(*again, cwd=tmp_path).returncode == 0
    assert (broken / "metrics.csv").read_bytes() == (unbroken / "metrics.csv").read_bytes()
    assert_same(final(broken), final(unbroken))
    for name in ("best.ckpt", "step-12.ckpt"):
        assert_same(
            torch.load(broken / "checkpoints" / name, weights_only=True),
            torch.load(unbroken / "checkpoints" / name, weights_only=True),
        )
    # it is complete now, and says so
    result = lkf(*again, cwd=tmp_path)
    assert result.returncode == 0 and "this run is complete" in result.stdout
    assert (broken / "metrics.csv").read_bytes() == (unbroken / "metrics.csv").read_bytes()
    # other settings are refused
    result = lkf(*again, "optim.lr=1e-3", cwd=tmp_path)
    assert result.returncode == 2
    assert "optim.lr was 0.0003" in result.stderr and "Traceback" not in result.stderr


@pytest.mark.slow
def test_two_processes(tmp_path: Path) -> None:
    folder = tmp_path / "ddp"
    devices = ["trainer.devices=2", "loader.batch_size=4", "trainer.max_steps=4"]
    result = lkf(*TINY, *devices, f"run_dir={folder}", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert final(folder)["global_step"] == 4

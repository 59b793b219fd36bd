"""Which runs are taken as they are, which are trained, in which order, and which are refused."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml

from experiments import runner
from experiments.runner import Run, compose_settings, progress, train
from experiments.studies.perturbation import perturbed_start
from lkf_plugin.errors import UserError
from lkf_plugin.runs.settings import plain
from tests.evaluate.small_run import HERE, TINY

Started = list[tuple[str, int]]


class Ended:
    """A process that ends a while after it began."""

    def __init__(self, looks: int = 0, status: int = 0) -> None:
        self.looks, self.returncode = looks, status

    def poll(self) -> int | None:
        self.looks -= 1
        return None if self.looks >= 0 else self.returncode

    def terminate(self) -> None:
        self.returncode = -15

    def wait(self) -> int:
        return self.returncode


def leave_files(run: Run, trial: int = 0) -> None:
    """What a training leaves, without the training."""
    settings = plain(compose_settings(run.command[1:]))
    steps = settings["trainer"]["max_steps"]
    (run.folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    (run.folder / "config.yaml").write_text(yaml.safe_dump(settings))
    for name in ("last.ckpt", "best.ckpt"):
        checkpoint = {"state_dict": {"w": torch.ones(1)}, "global_step": steps, "trial": trial}
        torch.save(checkpoint, run.folder / "checkpoints" / name)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    """(label, threads) of every training, which here only leaves its files."""
    begun: Started = []

    def begin(run: Run, threads: int) -> Ended:
        begun.append((run.label, threads))
        leave_files(run, len(begun))
        return Ended(looks=1)

    monkeypatch.setattr(runner, "_begin", begin)
    monkeypatch.setattr(runner, "POLL", 0.0)
    monkeypatch.setattr(runner, "cpu_count", lambda: 4)
    return begun


def demo(folder: Path, name: str = "M1", *more: str, start: Run | None = None) -> Run:
    return Run(name, folder / name, ("experiment=demo", "seed=1", *more), start)


def test_a_run_is_complete_at_its_last_step(tmp_path: Path) -> None:
    run = demo(tmp_path, "M1", "trainer.max_steps=5")
    assert not run.complete
    leave_files(run)
    assert run.complete
    torch.save(
        {"state_dict": {"w": torch.ones(1)}, "global_step": 4}, run.folder / "checkpoints/last.ckpt"
    )
    assert not run.complete


def test_what_is_complete_is_not_trained_again(tmp_path: Path, started: Started) -> None:
    runs = [demo(tmp_path, name) for name in ("a", "b", "c")]
    train(runs[:1])
    train(runs, workers=4)
    assert started == [("a", 4), ("b", 2), ("c", 2)]
    train(runs, workers=4)
    assert len(started) == 3


def test_runs_wait_for_the_one_they_start_from(tmp_path: Path, started: Started) -> None:
    first = demo(tmp_path, "first")
    later = [demo(tmp_path, name, start=first) for name in ("x", "y")]
    train(later, workers=2)
    assert [label for label, _ in started] == ["first", "x", "y"]
    assert later[0].command[-2] == f"init.from_checkpoint={first.best}"
    assert (later[0].folder / runner.STARTED_FROM).is_file()


def test_a_run_of_another_start_is_refused(tmp_path: Path, started: Started) -> None:
    first = demo(tmp_path, "first")
    later = demo(tmp_path, "x", start=first)
    train([later])
    leave_files(first, trial=99)
    with pytest.raises(UserError, match="started from another checkpoint"):
        train([later])
    (later.folder / runner.STARTED_FROM).unlink()  # brought in from elsewhere
    train([later])
    assert len(started) == 2


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (("seed=2",), "seed=1 and 2 was asked for"),
        (("trainer.max_steps=9",), "trainer.max_steps=700 and 9 was asked for"),
        (("model.hidden_size=32",), "model.hidden_size=64 and 32 was asked for"),
        (tuple(perturbed_start(1)), "callbacks.perturb_start._target_=None and experiments."),
    ],
)
def test_another_run_is_refused(
    now: tuple[str, ...], words: str, tmp_path: Path, started: Started
) -> None:
    train([demo(tmp_path)])
    with pytest.raises(UserError, match=words):
        train([demo(tmp_path, "M1", *now)])
    assert len(started) == 1


def test_what_only_the_machine_decides_is_not_compared(tmp_path: Path, started: Started) -> None:
    train([demo(tmp_path, "M1", "trainer.precision=bf16-mixed", "trainer.accelerator=cuda")])
    train([demo(tmp_path)])
    assert len(started) == 1


def test_the_others_are_stopped_when_one_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {"bad": Ended(status=2), "good": Ended(looks=10**9)}
    monkeypatch.setattr(runner, "_begin", lambda run, threads: made[run.label])
    monkeypatch.setattr(runner, "POLL", 0.0)
    bad = demo(tmp_path, "bad")
    bad.log.write_text("first\nerror: no heads\n")
    with pytest.raises(UserError, match=r"bad failed \(error: no heads\): see .*train-bad.log"):
        train([bad, demo(tmp_path, "good")], workers=2)
    assert made["good"].returncode == -15


def test_the_command_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By main.py itself; then it stands at its last step, and its bar has seen it."""
    seen: list[tuple[int, int | None, float | None]] = []
    look: Callable[[Path], tuple[int, int | None, float | None]] = progress

    def noted(folder: Path) -> tuple[int, int | None, float | None]:
        seen.append(look(folder))
        return seen[-1]

    monkeypatch.setattr(runner, "progress", noted)
    words = (*TINY, *HERE, f"data.cache_dir={tmp_path / 'cache'}", "trainer.log_every_n_steps=1")
    run = Run("tiny", tmp_path / "tiny", words)
    train([run])
    assert run.complete and "run folder" in run.log.read_text()
    step, total, loss = seen[-1]
    assert total == 4 and step >= 3 and loss is not None
    stamp, began = run.log.stat().st_mtime_ns, time.monotonic()
    train([run])
    assert run.log.stat().st_mtime_ns == stamp and time.monotonic() - began < 20

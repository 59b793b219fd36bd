"""A run that a signal stops is saved, says so, and goes on as if nothing had been."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig

from lkf_plugin.host.builtin import Diffusion
from lkf_plugin.train.stopping import Preempted
from tests.train.test_resume import assert_same

Compose = Callable[..., DictConfig]
Run = Callable[[DictConfig], Any]
ACCUMULATED = ("loader.batch_size=2", "trainer.val_check_interval=4", "model.dropout=0.1")


def signal_at(step: int, hook: str, name: str) -> list[str]:
    keys = {"_target_": "tests.train.signal_at.SignalAt", "step": step, "hook": hook, "name": name}
    return [f"+callbacks.signal.{key}={value}" for key, value in keys.items()]


def assert_equal_runs(a: Path, b: Path) -> None:
    assert (a / "metrics.csv").read_bytes() == (b / "metrics.csv").read_bytes()
    names = sorted(path.name for path in (a / "checkpoints").iterdir())
    assert names == sorted(path.name for path in (b / "checkpoints").iterdir())
    for name in names:
        one, other = (torch.load(f / "checkpoints" / name, weights_only=True) for f in (a, b))
        assert_same(one, other, name)


@pytest.mark.parametrize(
    ("step", "hook", "name", "every"),
    [
        (1, "on_after_backward", "SIGINT", 500),  # the first of a step's two micro-batches
        (3, "on_after_backward", "SIGTERM", 500),
        (3, "on_train_batch_end", "SIGINT", 3),  # at a step that is saved anyway
        (2, "on_validation_batch_end", "SIGINT", 2),
        (4, "on_validation_batch_end", "SIGTERM", 500),  # the run's last validation
    ],
)
def test_stopped_and_resumed_equals_unbroken(
    tiny: Compose, run: Run, tmp_path: Path, step: int, hook: str, name: str, every: int
) -> None:
    settings = (*ACCUMULATED, f"checkpointing.every_n_steps={every}")
    run(tiny(*settings, f"run_dir={tmp_path / 'unbroken'}"))
    with pytest.raises(Preempted) as stopped:
        run(tiny(*settings, *signal_at(step, hook, name)))
    assert stopped.value.code == {"SIGINT": 130, "SIGTERM": 143}[name]
    last = tmp_path / "run" / "checkpoints" / "last.ckpt"
    assert stopped.value.sentence == (
        f"{name}: saved step {step} to {last}; run the same command again to go on."
    )
    assert torch.load(last, weights_only=True)["global_step"] == step
    run(tiny(*settings))
    assert_equal_runs(tmp_path / "unbroken", tmp_path / "run")


def test_the_last_validation_is_made_up_for_once(
    tiny: Compose, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Preempted):
        run(tiny(*signal_at(4, "on_validation_batch_end", "SIGTERM")))
    assert run(tiny())["val/nll"] > 0
    assert "going on from step 4 of 4" in capsys.readouterr().out
    assert run(tiny()) == {} and "this run is complete" in capsys.readouterr().out


def test_between_two_batches_of_samples(
    tiny: Compose, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # four batches of four samples: two of the blocks that MDLM's sampler draws
    drawing = ("eval.generate_samples=true", "sampling.num_sample_batches=4")
    sampled = (*drawing, "trainer.num_sanity_val_steps=0")
    run(tiny(*sampled, f"run_dir={tmp_path / 'unbroken'}"))
    drawn, draw = [], Diffusion.draw_block

    def interrupted(self: Any, *args: Any, **kwargs: Any) -> Any:
        drawn.append(self.trainer.global_step)
        os.kill(os.getpid(), signal.SIGINT)
        return draw(self, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(Diffusion, "draw_block", interrupted)
        with pytest.raises(Preempted, match="130"):
            run(tiny(*sampled))
    assert drawn == [2]  # the second batch of the first validation was not begun
    run(tiny(*sampled))
    assert_equal_runs(tmp_path / "unbroken", tmp_path / "run")
    for path in (tmp_path / "unbroken" / "samples").iterdir():
        assert path.read_bytes() == (tmp_path / "run" / "samples" / path.name).read_bytes()


def test_before_the_first_step_there_is_nothing_to_save(
    tiny: Compose, run: Run, tmp_path: Path
) -> None:
    with pytest.raises(Preempted) as stopped:
        run(tiny(*ACCUMULATED, *signal_at(0, "on_after_backward", "SIGINT")))
    assert "nothing to save; the same command starts again" in stopped.value.sentence
    assert not (tmp_path / "run" / "checkpoints" / "last.ckpt").exists()

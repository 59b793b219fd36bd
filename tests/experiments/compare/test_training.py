"""Which runs are taken as they are, which are trained, and which are refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from experiments.compare import training
from experiments.compare.rows import Row
from experiments.compare.sotu import ROWS
from experiments.compare.training import complete, train_row
from lkf_plugin.errors import UserError


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """Overrides of every training, which here only leaves its files."""
    done: list[Sequence[str]] = []

    def leave_files(folder: Path, overrides: Sequence[str]) -> None:
        done.append(list(overrides))
        steps = next(o for o in overrides if o.startswith("trainer.max_steps=")).split("=")[1]
        seed = next(o for o in overrides if o.startswith("seed=")).split("=")[1]
        (folder / "checkpoints").mkdir(parents=True)
        text = f"seed: {seed}\ntrainer: {{max_steps: {steps}}}\n"
        (folder / "config.yaml").write_text(text)
        for name in ("last.ckpt", "best.ckpt"):
            checkpoint = {"state_dict": {}, "global_step": int(steps), "trial": len(done)}
            torch.save(checkpoint, folder / "checkpoints" / name)

    monkeypatch.setattr(training, "_train", leave_files)
    return done


def test_a_run_is_complete_at_its_last_step(tmp_path: Path) -> None:
    assert not complete(tmp_path)
    (tmp_path / "config.yaml").write_text("trainer: {max_steps: 5}\n")
    (tmp_path / "checkpoints").mkdir()
    for step in (4, 5):
        torch.save({"state_dict": {}, "global_step": step}, tmp_path / "checkpoints" / "last.ckpt")
        assert complete(tmp_path) == (step == 5)


def test_the_mixture_starts_from_the_factorised_run_of_the_same_comparison(
    tmp_path: Path, commands: list[Sequence[str]]
) -> None:
    folder = train_row(tmp_path, ROWS, "lkf-M8", 1, 4)
    assert folder == tmp_path / "lkf-M8"
    first, second = commands
    assert first[0] == "experiment=sotu" and "trainer.val_check_interval=4" in first
    best = (tmp_path / "lkf-M1" / "checkpoints" / "best.ckpt").resolve()
    assert second[0] == "experiment=sotu-mixture" and second[-1] == f"init.from_checkpoint={best}"
    train_row(tmp_path, ROWS, "lkf-M1", 1, 4)
    train_row(tmp_path, ROWS, "lkf-M8", 1, 4)
    assert len(commands) == 2  # both are complete

    torch.save({"state_dict": {}, "global_step": 4, "trial": "another"}, best)
    with pytest.raises(UserError, match="started from another checkpoint"):
        train_row(tmp_path, ROWS, "lkf-M8", 1, 4)


def test_a_run_of_another_seed_or_length_is_refused(
    tmp_path: Path, commands: list[Sequence[str]]
) -> None:
    rows = {"mdlm": Row(("experiment=sotu_baseline", "method=mdlm"))}
    train_row(tmp_path, rows, "mdlm", 1, 4)
    with pytest.raises(UserError, match="seed=1 and 2 was asked for"):
        train_row(tmp_path, rows, "mdlm", 2, 4)
    with pytest.raises(UserError, match="max_steps=4 and 1500 was asked for"):
        train_row(tmp_path, rows, "mdlm", 1)
    assert len(commands) == 1

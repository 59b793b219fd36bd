"""Checkpoint files: atomic, shared, and intact when the disk is full."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
import torch

from lkf_plugin.errors import UserError
from lkf_plugin.train import checkpoint
from lkf_plugin.train.checkpoint import AtomicCheckpointIO, StepCheckpoint, share_file
from lkf_plugin.train.loops import pin_progress


def test_full_disk_leaves_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    io, target = AtomicCheckpointIO(), tmp_path / "last.ckpt"
    io.save_checkpoint({"step": 1}, target)

    def full(content: Any, file: Any) -> None:
        file.write(b"half")
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        except OSError as error:
            raise RuntimeError("unexpected pos 64 vs 0") from error  # as torch's writer does

    monkeypatch.setattr(checkpoint.torch, "save", full)
    with pytest.raises(UserError, match="disk is full"):
        io.save_checkpoint({"step": 2}, target)
    monkeypatch.undo()
    assert torch.load(target, weights_only=True) == {"step": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["last.ckpt"]


def test_another_failure_is_not_called_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(content: Any, file: Any) -> None:
        raise RuntimeError("something else")

    monkeypatch.setattr(checkpoint.torch, "save", broken)
    with pytest.raises(RuntimeError, match="something else"):
        AtomicCheckpointIO().save_checkpoint({}, tmp_path / "x.ckpt")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("links", [True, False])
def test_shared_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    if not links:
        monkeypatch.setattr(checkpoint.os, "link", lambda *_: (_ for _ in ()).throw(OSError()))
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_text("new")
    target.write_text("old")
    share_file(source, target)
    assert target.read_text() == "new"
    assert source.samefile(target) is links


def test_only_the_newest_numbered_ones_stay(tmp_path: Path) -> None:
    for step in (3, 10, 9):
        (tmp_path / f"step-{step}.ckpt").touch()
    (tmp_path / "step-x.ckpt").touch()
    StepCheckpoint(str(tmp_path), every_n_steps=1, keep_last=2)._drop_old(10)
    assert {p.name for p in tmp_path.iterdir()} == {"step-9.ckpt", "step-10.ckpt", "step-x.ckpt"}
    StepCheckpoint(str(tmp_path), every_n_steps=1, keep_last=0)._drop_old(10)
    assert {p.name for p in tmp_path.iterdir()} == {"step-x.ckpt"}


@pytest.mark.parametrize(("every", "keep"), [(0, 1), (1, -1)])
def test_senseless_settings(every: int, keep: int) -> None:
    with pytest.raises(UserError, match="checkpointing"):
        StepCheckpoint("x", every_n_steps=every, keep_last=keep)


def test_counters_are_those_of_a_finished_step() -> None:
    def counters() -> dict[str, Any]:
        scope = {"ready": 9, "started": 9, "processed": 8, "completed": 8}
        return {"total": dict(scope), "current": dict(scope)}

    loop = {
        "epoch_progress": counters(),
        "epoch_loop.batch_progress": counters() | {"is_last_batch": True},
        "epoch_loop.val_loop.batch_progress": counters() | {"is_last_batch": True},
        "epoch_loop.state_dict": {"_batches_that_stepped": 4},
        "epoch_loop.automatic_optimization.optim_progress": {
            "optimizer": {"zero_grad": counters()}
        },
    }
    saved = {"global_step": 4, "epoch": 1, "loops": {"fit_loop": loop}}
    pin_progress(saved, accumulate_grad_batches=2)
    assert loop["epoch_loop.batch_progress"]["total"] == {
        "ready": 8,
        "started": 8,
        "processed": 8,
        "completed": 7,
    }
    assert loop["epoch_loop.state_dict"] == {"_batches_that_stepped": 3}
    zeroed = loop["epoch_loop.automatic_optimization.optim_progress"]["optimizer"]["zero_grad"]
    assert set(zeroed["total"].values()) == {4}
    assert saved["epoch"] == 0

"""Which checkpoint a run goes on from; one folder holds one run."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig

from lkf_plugin import checkpoint_file
from lkf_plugin.errors import UserError
from lkf_plugin.train import read_once

Compose = Callable[..., DictConfig]
Run = Callable[[DictConfig], Any]


@pytest.fixture
def folder(tiny: Compose, run: Run, tmp_path: Path) -> Path:
    """The checkpoints of a run of four steps, one file per step."""
    run(tiny("checkpointing.every_n_steps=1"))
    return tmp_path / "run" / "checkpoints"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["checkpointing.resume_from_ckpt=false"], "resume_from_ckpt=false begins a new run, and"),
        (["checkpointing.resume_ckpt_path=null"], "resume_ckpt_path=null begins a new run, and"),
        (["checkpointing.resume_ckpt_path={}/lsat.ckpt"], "There is no checkpoint at"),
        (["checkpointing.resume_ckpt_path=/nowhere/last.ckpt"], "There is no checkpoint at"),
        (["checkpointing.resume_ckpt_path={}/../elsewhere.ckpt"], "from another folder"),
        (["checkpointing.resume_ckpt_path=s3://bucket/last.ckpt"], "is an address"),
        (["checkpointing.resume_ckpt_path=https://example.org/a.ckpt"], "is an address"),
        (["checkpointing.save_dir=s3://bucket/run"], "is an address"),
    ],
)
def test_two_runs_are_never_mixed(
    tiny: Compose, run: Run, folder: Path, overrides: list[str], words: str
) -> None:
    shutil.copy(folder / "last.ckpt", folder.parent / "elsewhere.ckpt")
    before = contents(folder)
    given = [override.format(folder) for override in overrides]
    with pytest.raises(UserError, match=words):
        run(tiny("trainer.max_steps=6", *given))
    assert contents(folder) == before


def test_evaluation_and_start_take_local_files_only(tiny: Compose, run: Run) -> None:
    address = "hf://someone/model.ckpt"
    for overrides in (
        ("mode=ppl_eval", f"eval.checkpoint_path={address}"),
        ("mode=sample_eval", f"eval.checkpoint_path={address}"),
        ("method=mdlm", f"init.from_checkpoint={address}"),
    ):
        with pytest.raises(UserError, match="is an address, and checkpoints are local files"):
            run(tiny(*overrides))


def test_without_the_last_the_newest_whole_one_goes_on(
    tiny: Compose, run: Run, folder: Path, capsys: Any
) -> None:
    whole = torch.load(folder / "last.ckpt", weights_only=True)
    metrics = folder.parent / "metrics.csv"
    rows = metrics.read_bytes()
    (folder / "last.ckpt").unlink()
    step_4 = (folder / "step-4.ckpt").read_bytes()
    (folder / "step-4.ckpt").unlink()
    (folder / "step-4.ckpt").write_bytes(step_4[:4])  # damaged: the one before it is taken
    run(tiny("checkpointing.every_n_steps=1"))
    out = capsys.readouterr().out
    assert "last.ckpt is missing: going on from step-3.ckpt" in out
    again = torch.load(folder / "last.ckpt", weights_only=True)
    for name, tensor in whole["state_dict"].items():
        assert torch.equal(again["state_dict"][name], tensor)
    assert metrics.read_bytes() == rows

    for path in folder.iterdir():
        path.write_bytes(b"half")
    (folder / "last.ckpt").unlink()
    with pytest.raises(UserError, match="no checkpoint beside it is whole"):
        run(tiny("trainer.max_steps=6"))


def test_going_back_takes_later_files_away(tiny: Compose, run: Run, folder: Path) -> None:
    back = f"checkpointing.resume_ckpt_path={folder / 'step-3.ckpt'}"
    run(tiny("trainer.max_steps=4", "checkpointing.every_n_steps=9", back))
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["best.ckpt", "last.ckpt", "step-3.ckpt", "step-4.ckpt"]


def test_a_folder_without_checkpoints_may_be_begun(tiny: Compose, run: Run, folder: Path) -> None:
    shutil.rmtree(folder)
    run(tiny("checkpointing.resume_from_ckpt=false", "trainer.max_steps=1"))
    assert torch.load(folder / "last.ckpt", weights_only=True)["global_step"] == 1


def test_resuming_reads_the_checkpoint_once_and_prepares_once(
    tiny: Compose, run: Run, folder: Path, monkeypatch: Any
) -> None:
    loads, prepares = [], []
    load = torch.load
    monkeypatch.setattr(torch, "load", lambda f, **kw: loads.append(str(f)) or load(f, **kw))
    from lkf_plugin.modes import train as train_module

    prepare = train_module.prepare
    monkeypatch.setattr(
        train_module, "prepare", lambda *a, **kw: prepares.append(1) or prepare(*a, **kw)
    )
    run(tiny("trainer.max_steps=6"))
    assert loads == [str(folder / "last.ckpt")] and prepares == [1]


def test_what_was_kept_is_given_once_and_only_for_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    torch.save({"state_dict": {"w": torch.ones(1)}}, path)
    checkpoint = checkpoint_file.read_checkpoint(path)
    read_once.keep(path, checkpoint)
    assert read_once.take(path) is checkpoint and read_once.take(path) is None
    read_once.keep(path, checkpoint)
    torch.save({"state_dict": {"w": torch.ones(9)}}, path)
    assert read_once.take(path) is None

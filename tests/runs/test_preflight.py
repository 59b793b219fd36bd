"""Disk, judge and cache are looked at before the work."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig
from torch import nn

from lkf_plugin.config import register_resolvers
from lkf_plugin.data import prepare
from lkf_plugin.errors import UserError
from lkf_plugin.runs import preflight
from lkf_plugin.runs.settings import write_or_keep
from tests.cli.conftest import TINY
from tests.cli.test_malformed_paths import NOBODY

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[..., DictConfig]:
    from hydra import compose, initialize_config_dir

    from lkf_plugin import cli

    register_resolvers()

    def composed(*overrides: str) -> DictConfig:
        places = (f"run_dir={tmp_path / 'run'}", f"data.cache_dir={tmp_path / 'cache'}")
        with initialize_config_dir(str(cli.config_folder()), version_base="1.3"):
            return compose("config", overrides=[*TINY, *places, *overrides])

    return composed


def test_the_estimate_is_a_checkpoints_size(
    tiny: Callable[..., DictConfig], tmp_path: Path
) -> None:
    from lkf_plugin import cli
    from lkf_plugin.runs.common import build_module

    config = tiny("model.hidden_size=64", "optim.lr=1e-3")
    cli.run(config)
    module = build_module(config, prepare(config).tokenizer)
    saved = (tmp_path / "run" / "checkpoints" / "last.ckpt").stat().st_size
    assert preflight.checkpoint_bytes(module, config) == pytest.approx(saved, rel=0.15)


@pytest.mark.parametrize(("keep_last", "steps", "files"), [(2, 4, 4), (0, 4, 3), (2, 1, 2)])
def test_a_full_disk_is_told_with_the_numbers(
    tiny: Callable[..., DictConfig],
    monkeypatch: pytest.MonkeyPatch,
    keep_last: int,
    steps: int,
    files: int,
) -> None:
    module = nn.Linear(1000, 1000, bias=False)  # 4 MB: with average and moments 16 MB
    config = tiny(
        f"checkpointing.keep_last={keep_last}",
        f"trainer.max_steps={steps}",
        "checkpointing.every_n_steps=1",
    )
    free = files * 16_000_000
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(0, 0, free))
    preflight.check_disk(config, module)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(0, 0, free - 1))
    with pytest.raises(UserError, match=rf"about {files * 16}.0 MB \({files} files of 16.0 MB"):
        preflight.check_disk(config, module)


def test_a_runs_own_checkpoints_count_as_free(
    tiny: Callable[..., DictConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run" / "checkpoints"
    folder.mkdir(parents=True)
    (folder / "last.ckpt").write_bytes(b"x" * 1000)
    os.link(folder / "last.ckpt", folder / "step-3.ckpt")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(0, 0, 5))
    assert preflight.free_bytes(folder) == 1005


def test_the_judge_is_loaded_before_training(
    tiny: Callable[..., DictConfig], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from lkf_plugin import cli

    def missing(*args: Any, **kwargs: Any) -> None:
        raise UserError("no such judge")

    monkeypatch.setattr("lkf_plugin.judge.judge.Judge", missing)
    asked = ("eval.generate_samples=true", "eval.compute_generative_perplexity=true")
    with pytest.raises(UserError, match="no such judge"):
        cli.run(tiny(*asked))
    assert not (tmp_path / "run").exists()
    assert preflight.judge_of_training(tiny(asked[0])) is None


def test_a_complete_cache_may_be_read_only(tiny: Callable[..., DictConfig]) -> None:
    place = Path(tempfile.mkdtemp(prefix="cache-", dir="/tmp"))
    text = place / "my.txt"
    words = "one two three four five six seven eight nine ten eleven twelve "
    text.write_text("\n\n".join(words * 3 + str(i) for i in range(40)))
    config = tiny("model.length=8")
    config.data = {
        "kind": "text",
        "train": "my",
        "valid": "my",
        "path": str(text),
        "tokenizer_name_or_path": "train",
        "vocab_size": 300,
        "cache_dir": str(place / "cache"),
    }
    made = prepare(config)
    shutil.rmtree(place / "cache" / "prepared" / "x", ignore_errors=True)
    for path in (place / "cache").rglob("*"):
        if path.name.endswith(".lock"):
            path.unlink()
        else:
            path.chmod(0o555 if path.is_dir() else 0o444)
    for path in (place, place / "cache"):
        path.chmod(0o555)
    is_root = os.geteuid() == 0
    try:
        if is_root:
            os.seteuid(NOBODY)
        again = prepare(config)
        with pytest.raises(UserError, match="cannot be written to"):
            config.model.length = 16
            prepare(config)
    finally:
        if is_root:
            os.seteuid(0)
        for path in (place, *place.rglob("*")):
            path.chmod(0o755)
        shutil.rmtree(place)
    assert again.digest == made.digest
    assert torch.equal(again.train[0]["input_ids"], made.train[0]["input_ids"])


def test_what_cannot_be_written_is_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="what was made is kept in (.*)[.]$") as told:
        write_or_keep(tmp_path / "file" / "samples.jsonl", "samples\n")
    kept = Path(str(told.value).rpartition(" ")[2].rstrip("."))
    assert kept.read_text() == "samples\n" and kept.suffix == ".jsonl"
    kept.unlink()

"""A method with a frozen teacher and rounds, added by one file and its YAML."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from lkf_plugin import cli
from lkf_plugin.checkpoint_file import read_checkpoint
from lkf_plugin.config import register_resolvers
from lkf_plugin.errors import UserError
from tests.cli.conftest import TINY
from tests.extension.conftest import LIMIT, Example

FILES = ["my_methods.py", "conf/method/pulled.yaml"]


@pytest.fixture
def method(tmp_path: Path, example: Callable[[str], Example]) -> Callable[..., DictConfig]:
    """Composes a command line with the method that docs/architecture.md adds."""
    register_resolvers()
    pulled = example("A method")
    assert pulled.files == FILES and pulled.lines <= LIMIT

    def composed(name: str, *overrides: str) -> DictConfig:
        places = (f"run_dir={tmp_path / name}", f"data.cache_dir={tmp_path / 'cache'}")
        search = (f"hydra.searchpath=[file://{tmp_path / 'conf'}]", "model=tiny", "model.length=32")
        with initialize_config_dir(str(cli.config_folder()), version_base="1.3"):
            words = [*search, *TINY, *places, "trainer.max_steps=8", *overrides]
            return compose("config", overrides=words)

    return composed


def last(tmp_path: Path, name: str) -> dict[str, Any]:
    return read_checkpoint(tmp_path / name / "checkpoints" / "last.ckpt")


def test_teacher_and_rounds_resume_bit_for_bit(method: Callable[..., DictConfig], tmp_path: Path):
    cli.run(method("teacher"))
    teacher = tmp_path / "teacher" / "checkpoints" / "last.ckpt"
    words = ("method=pulled", f"method.teacher={teacher}", "training.ema=0.9")
    cli.run(method("whole", *words))
    whole = last(tmp_path, "whole")
    assert whole["teacher"]["round"] == 1

    keep = ("checkpointing.every_n_steps=1", "checkpointing.keep_last=9")
    cli.run(method("parts", *words, *keep))
    folder = tmp_path / "parts" / "checkpoints"
    for step in (3, 4, 6):  # inside a round, at its end, and after a change of teacher
        for later in folder.glob("*.ckpt"):
            number = later.stem.removeprefix("step-")
            if not number.isdecimal() or int(number) > step:
                later.unlink()
        cli.run(method("parts", *words, *keep))
        parts = last(tmp_path, "parts")
        for key, tensor in whole["state_dict"].items():
            assert torch.equal(tensor, parts["state_dict"][key]), (step, key)
        for key, tensor in whole["teacher"]["weights"].items():
            assert torch.equal(tensor, parts["teacher"]["weights"][key]), (step, key)


def test_the_second_teacher_is_the_student_of_the_first_round(
    method: Callable[..., DictConfig], tmp_path: Path
):
    cli.run(method("teacher"))
    teacher = tmp_path / "teacher" / "checkpoints" / "last.ckpt"
    words = ("method=pulled", f"method.teacher={teacher}", "training.ema=0")
    keep = ("checkpointing.every_n_steps=1", "checkpointing.keep_last=9")
    cli.run(method("run", *words, *keep))
    student = read_checkpoint(tmp_path / "run" / "checkpoints" / "step-4.ckpt")["state_dict"]
    for key, tensor in last(tmp_path, "run")["teacher"]["weights"].items():
        assert torch.equal(tensor, student[f"backbone.{key}"])


def test_the_command_of_the_page(
    example: Callable[[str], Example], main: Callable[..., int], method: Callable[..., DictConfig]
):
    cli.run(method("teacher"))
    teacher = "method.teacher=teacher/checkpoints/last.ckpt"
    words = ["model.length=32", "trainer.max_steps=4"]
    arguments = [a for a in example("A method").arguments if not a.startswith("method.teacher")]
    assert main(*arguments, teacher, *words) == 0
    assert main(*arguments, *words) == 2  # no teacher


def test_mistakes_are_told(method: Callable[..., DictConfig], tmp_path: Path):
    cli.run(method("teacher"))
    teacher = tmp_path / "teacher" / "checkpoints" / "last.ckpt"
    words = ("method=pulled", f"method.teacher={teacher}")
    with pytest.raises(UserError, match="method.rounds=3 must divide trainer.max_steps=8"):
        cli.run(method("run", *words, "method.rounds=3"))
    with pytest.raises(UserError, match="hidden_size"):
        cli.run(method("run", *words, "model.hidden_size=32"))
    assert not (tmp_path / "run" / "checkpoints").exists()

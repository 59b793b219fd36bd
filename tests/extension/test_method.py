"""A method with a frozen teacher and rounds, added by one file and its YAML."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
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

METHOD = '''
"""Pulls a student's denoiser towards its teacher's, by the forward KL divergence at masks."""
import torch

from lkf_plugin.host.builtin import Diffusion
from lkf_plugin.methods.method import METHODS, Method
from lkf_plugin.methods.mdlm import MDLM
from lkf_plugin.methods.taught import Taught, TaughtSettings, check_rounds
from lkf_plugin.subs import subs_log_probs


class Pulled(Taught, MDLM):
    def _forward_pass_diffusion(self, x0):
        if not self.training:
            return Diffusion._forward_pass_diffusion(self, x0)
        sigma, _ = self.noise(self._sample_t(len(x0), x0.device))
        xt = self.q_xt(x0, 1 - torch.exp(-sigma[:, None]))
        with torch.no_grad():
            logits = self.teacher(xt, self._process_sigma(sigma))
            wanted = subs_log_probs(logits, xt, self.mask_index)
        own = self.forward(xt, sigma[:, None])
        kl = (wanted.exp() * (wanted - own)).sum(-1)
        return torch.where(xt == self.mask_index, kl, 0.0)


METHODS.add("pulled")(Method(Pulled, TaughtSettings, check=check_rounds, label="Pulled"))
'''
GROUP = """# @package _global_
host: builtin
method:
  name: my_pulled_method.pulled
  float64_draws: true
  teacher: ???
  rounds: 2
"""


@pytest.fixture
def method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., DictConfig]]:
    """Composes a command line with the new method; its file lies in a folder of its own."""
    register_resolvers()
    code = tmp_path / "code"
    (code / "method").mkdir(parents=True)
    (code / "my_pulled_method.py").write_text(METHOD)
    (code / "method" / "pulled.yaml").write_text(GROUP)
    monkeypatch.syspath_prepend(str(code))

    def composed(name: str, *overrides: str) -> DictConfig:
        places = (f"run_dir={tmp_path / name}", f"data.cache_dir={tmp_path / 'cache'}")
        search = (f"hydra.searchpath=[file://{code}]", "model=tiny", "model.length=32")
        with initialize_config_dir(str(cli.config_folder()), version_base="1.3"):
            words = [*search, *TINY, *places, "trainer.max_steps=8", *overrides]
            return compose("config", overrides=words)

    yield composed
    sys.modules.pop("my_pulled_method", None)


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


def test_mistakes_are_told(method: Callable[..., DictConfig], tmp_path: Path):
    cli.run(method("teacher"))
    teacher = tmp_path / "teacher" / "checkpoints" / "last.ckpt"
    words = ("method=pulled", f"method.teacher={teacher}")
    with pytest.raises(UserError, match="method.rounds=3 must divide trainer.max_steps=8"):
        cli.run(method("run", *words, "method.rounds=3"))
    with pytest.raises(UserError, match="hidden_size"):
        cli.run(method("run", *words, "model.hidden_size=32"))
    assert not (tmp_path / "run" / "checkpoints").exists()

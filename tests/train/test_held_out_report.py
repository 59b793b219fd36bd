"""What experiment=own-text says at its end, in one small run of the real thing."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from omegaconf import DictConfig

from lkf_plugin import cli
from lkf_plugin.config import register_resolvers
from lkf_plugin.data import prepare
from lkf_plugin.errors import UserError
from lkf_plugin.train.held_out_report import HeldOut, measure

SMALL = (
    "model.hidden_size=16",
    "model.n_blocks=2",
    "model.n_heads=1",
    "model.cond_dim=8",
    "trainer.accelerator=cpu",
    "trainer.devices=1",
    "trainer.precision=32-true",
    "trainer.max_steps=4",
    "trainer.val_check_interval=2",
    "lr_scheduler.warmup_steps=1",
    "loader.eval_global_batch_size=4",
)
WORDS = "the small quick fox sees a dog near hills".split()


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "my text.txt"
    lines = (" ".join(WORDS[(i * 7 + j * j) % 9] for j in range(20)) + f" {i}." for i in range(240))
    path.write_text("\n\n".join(lines))
    return path


@pytest.fixture
def own_text(tmp_path: Path, text: Path) -> Callable[..., DictConfig]:
    register_resolvers()

    def composed(*overrides: str, experiment: str = "own-text") -> DictConfig:
        places = (f"data.path='{text}'", f"data.cache_dir={tmp_path / 'cache'}")
        words = [f"experiment={experiment}", *SMALL, *places, *overrides]
        with initialize_config_dir(str(cli.config_folder()), version_base="1.3"):
            return hydra_compose("config", overrides=words)

    return composed


def test_the_run_ends_with_its_meaning(
    own_text: Callable[..., DictConfig],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    config = own_text()
    assert config.run_dir == "./outputs/own-text/my_text-M1-seed1"
    cli.run(config)
    out = capsys.readouterr().out
    folder = tmp_path / "outputs" / "own-text" / "my_text-M1-seed1"
    assert (folder / "checkpoints" / "best.ckpt").is_file()
    said = re.search(r"Best at step (\d): val/nll ([\d.]+) nats per token on (\d+) held-out", out)
    assert said and "A model without context" in out
    assert re.search(r"^  lkf run_dir=\S+ mode=sample_eval$", out, re.M)
    assert re.search(r"^  lkf run_dir=\S+ mode=ppl_eval$", out, re.M)

    prepared = prepare(config)
    report = measure(prepared, float(said[2]), int(said[3]))
    assert f"{report.unigram:.3f} on the same tokens" in out
    # the figures are those of an evaluation, and of the held-out text itself
    cli.run(own_text("mode=ppl_eval"))
    metrics = json.loads((folder / "ppl_eval.json").read_text())["metrics"]
    assert metrics["val/nll"] == pytest.approx(float(said[2]), abs=6e-4)
    assert report.tokens == 64 * report.sequences
    assert report.text_bytes == report.characters > report.tokens

    cli.run(own_text("mode=sample_eval", "sampling.steps=2"))
    assert len((folder / "samples.jsonl").read_text().splitlines()) == 4
    mixture = own_text("init.from_checkpoint=${run_dir}", experiment="own-text-mixture")
    assert mixture.model.num_components == 8
    mixture = own_text(experiment="own-text-mixture")
    cli.run(mixture)  # starts from the run above, whose folder it finds by the text's name
    assert (tmp_path / "outputs/own-text/my_text-M8-seed1/checkpoints/last.ckpt").is_file()


def test_too_little_text_says_what_is_missing(
    own_text: Callable[..., DictConfig], text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text.write_text("a short text. " * 100)
    with pytest.raises(UserError, match="holds 1,399 characters .* 18,601 more are missing"):
        cli.run(own_text())


def test_sentences() -> None:
    report = HeldOut(math.log(4), math.log(8), 10, 640, 1_280, 2_560)
    text = report.sentences()
    assert "1.386 nats per token on 10 held-out" in text
    assert "1.000 bits per character, 0.500 per byte" in text
    assert "2.079 on the same tokens: context is worth 0.693 nats" in text
    assert "learned nothing" in HeldOut(3.0, 2.0, 1, 1, 0, 0).sentences()

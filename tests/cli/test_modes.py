"""train, ppl_eval and sample_eval, from one composed configuration each."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from omegaconf import DictConfig

from lkf_plugin.data import prepare
from lkf_plugin.errors import UserError
from lkf_plugin.modes.sample_eval import read_prompt
from lkf_plugin.runs.lock import only_trainer_of
from lkf_plugin.train.finite import NonFiniteError
from lkf_plugin.upstream.select import select_host
from tests.tiny import LKF_OVERRIDES as LKF

Compose = Callable[..., DictConfig]
Run = Callable[[DictConfig], Any]


@pytest.mark.parametrize("model", [(), LKF], ids=["mdlm", "mixture"])
def test_train_then_evaluate(
    tiny: Compose, run: Run, tmp_path: Path, model: tuple[str, ...]
) -> None:
    folder = tmp_path / "run"
    run(tiny(*model))
    names = {path.name for path in (folder / "checkpoints").iterdir()}
    assert {"last.ckpt", "best.ckpt", "step-4.ckpt"} <= names
    saved = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)
    assert not any("hyper" in key for key in saved)
    last = (folder / "metrics.csv").read_text().splitlines()[-1].split(",")
    header = (folder / "metrics.csv").read_text().splitlines()[0].split(",")
    row = dict(zip(header, last, strict=True))
    assert row["step"] == "4" and float(row["trainer/grad_norm"]) > 0
    settings = yaml.safe_load((folder / "config.yaml").read_text())
    assert settings["loader"]["batch_size"] == 4

    # the last validation again, from the checkpoint: the same masks, the same number
    at_end = f"eval.checkpoint_path={folder / 'checkpoints' / 'last.ckpt'}"
    report = run(tiny(*model, "mode=ppl_eval", at_end))
    assert report == json.loads((folder / "ppl_eval.json").read_text())
    assert report["metrics"]["val/nll"] == float(row["val/nll"])
    assert report["metrics"]["val/ppl"] == pytest.approx(math.exp(report["metrics"]["val/nll"]))
    assert report["ema"] and report["step"] == 4 and report["host"] == "builtin"
    raw = run(tiny(*model, "mode=ppl_eval", at_end, "eval.disable_ema=true"))
    assert raw["metrics"]["val/nll"] != report["metrics"]["val/nll"]

    wanted = ("mode=sample_eval", at_end, "loader.eval_batch_size=3")
    first = run(tiny(*model, *wanted))
    lines = (folder / "samples.jsonl").read_text()
    rows = [json.loads(line) for line in lines.splitlines()]
    assert first["num_samples"] == len(rows) == 6
    assert all(len(row["ids"]) == 32 for row in rows)
    assert len({tuple(row["ids"]) for row in rows}) > 1
    run(tiny(*model, *wanted))
    assert (folder / "samples.jsonl").read_text() == lines  # a function of the seed


def test_prompt_is_kept(tiny: Compose, run: Run, tmp_path: Path) -> None:
    run(tiny())
    config = tiny("mode=sample_eval", "loader.eval_batch_size=2")
    prepared = prepare(config, splits=("valid",))
    words = prepared.tokenizer.decode(prepared.valid[0]["input_ids"][:3])
    config.sampling.prompt = f"{words} [MASK] {words}"
    ids = read_prompt(config, prepared)
    given = prepared.valid[0]["input_ids"][:3]
    assert torch.equal(ids[:3], given) and torch.equal(ids[4:7], given)
    assert ids[3] == prepared.mask_index and (ids[7:] == prepared.mask_index).all()
    run(config)
    for line in (tmp_path / "run" / "samples.jsonl").read_text().splitlines():
        got = torch.tensor(json.loads(line)["ids"])
        assert torch.equal(got[:3], given) and torch.equal(got[4:7], given)
        assert prepared.mask_index not in got

    config.sampling.prompt = " ".join([words] * 20)
    with pytest.raises(UserError, match="more than model.length=32"):
        read_prompt(config, prepared)


def test_resume_needs_the_same_settings(tiny: Compose, run: Run, tmp_path: Path) -> None:
    run(tiny())
    for override in ("optim.lr=1e-3", "seed=2", "model.n_heads=4", "training.ema=0.9"):
        key, value = override.split("=")
        with pytest.raises(UserError, match=re.escape(f"{key} was")) as caught:
            run(tiny(override, "trainer.max_steps=6"))
        assert "another run_dir" in str(caught.value)
    run(tiny("trainer.max_steps=6", "trainer.log_every_n_steps=2", "sampling.steps=9"))
    saved = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)
    assert saved["global_step"] == 6


def test_longer_run_equals_one_that_was_planned_so(tiny: Compose, run: Run, tmp_path: Path) -> None:
    run(tiny())
    run(tiny("trainer.max_steps=6"))
    run(tiny("trainer.max_steps=6", f"run_dir={tmp_path / 'once'}"))
    paths = [tmp_path / name / "metrics.csv" for name in ("run", "once")]
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.parametrize("damage", ["truncated", "foreign", "text"])
def test_damaged_checkpoint(tiny: Compose, run: Run, tmp_path: Path, damage: str) -> None:
    path = tmp_path / "run" / "checkpoints" / "last.ckpt"
    run(tiny())
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:-1000])
    elif damage == "foreign":
        torch.save({"weights": torch.ones(2)}, path)
    else:
        path.write_text("not a checkpoint")
    for mode in ("train", "ppl_eval"):
        config = tiny(f"mode={mode}", f"eval.checkpoint_path={path}", "trainer.max_steps=6")
        with pytest.raises(UserError, match=re.escape(str(path))):
            run(config)


def test_evaluation_of_another_network(tiny: Compose, run: Run) -> None:
    run(tiny())
    with pytest.raises(UserError, match="^model.hidden_size is 16 .* and 32"):
        run(tiny("mode=ppl_eval", "model.hidden_size=32"))


def test_no_checkpoint_yet(tiny: Compose, run: Run) -> None:
    with pytest.raises(UserError, match="train first"):
        run(tiny("mode=sample_eval"))
    with pytest.raises(UserError, match="no checkpoint at eval.checkpoint_path"):
        run(tiny("mode=ppl_eval", "eval.checkpoint_path=nowhere.ckpt"))


def test_a_step_that_is_not_finite_leaves_the_last_checkpoint(
    tiny: Compose, run: Run, tmp_path: Path
) -> None:
    with pytest.raises(NonFiniteError, match="step 2"):
        run(
            tiny(
                "optim.lr=1e30",
                "lr_scheduler.num_warmup_steps=0",
                "checkpointing.every_n_steps=1",
                "trainer.num_sanity_val_steps=0",
                "trainer.limit_val_batches=0",
            )
        )
    saved = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)
    assert saved["global_step"] == 1


def test_one_trainer_a_folder(tiny: Compose, run: Run, tmp_path: Path) -> None:
    with only_trainer_of(tmp_path / "run"):
        with pytest.raises(UserError, match="Another process is training"):
            run(tiny())
    run(tiny())


def test_muon_trains_and_resumes(tiny: Compose, run: Run, tmp_path: Path) -> None:
    run(tiny("optim.name=muon"))
    run(tiny("optim.name=muon", "trainer.max_steps=6"))
    once = tmp_path / "once"
    run(tiny("optim.name=muon", "trainer.max_steps=6", f"run_dir={once}"))
    paths = [folder / "metrics.csv" for folder in (tmp_path / "run", once)]
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_host_is_told(compose: Compose, capsys: pytest.CaptureFixture[str]) -> None:
    assert select_host(compose("host=builtin")) == "builtin"
    assert capsys.readouterr().out == "host: builtin\n"


def test_host_auto_and_mdlm(
    compose: Compose, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("MDLM_HOME", raising=False)
    monkeypatch.setattr("lkf_plugin.upstream.checkout.submodule_folder", lambda: tmp_path)
    assert select_host(compose()) == "builtin"
    with pytest.raises(UserError, match="needs an MDLM checkout"):
        select_host(compose("host=mdlm"))
    (tmp_path / "models").mkdir()
    for name in ("main.py", "diffusion.py", "models/dit.py"):
        (tmp_path / name).touch()
    assert select_host(compose()) == "mdlm"
    assert "PYTHONPATH" not in os.environ or str(tmp_path) not in os.environ["PYTHONPATH"]


@pytest.mark.parametrize("policy", ["commit", "best_of_m"])
def test_samples_tell_the_component_of_each_block(
    tiny: Compose, run: Run, tmp_path: Path, policy: str
) -> None:
    tree = ("model=lkf-tiny", "loss=mixture", "model.num_components=2", "model.latent_blocks=1",
            "model.latent=tree", "model.block_components=3", "model.block_length=10")  # fmt: skip
    run(tiny(*tree, "trainer.max_steps=1", "lr_scheduler.num_warmup_steps=1"))
    asked = ("mode=sample_eval", f"decode={policy}", "sampling.steps=2")
    run(tiny(*tree, *asked, "sampling.num_sample_batches=1"))
    lines = (tmp_path / "run" / "samples.jsonl").read_text(encoding="utf-8").splitlines()
    for row in map(json.loads, lines):
        components, texts = zip(*row["blocks"], strict=True)
        assert len(components) == 4 and {k // 3 for k in components} == {row["component"]}
        assert " ".join(texts) == row["text"]

"""``model.latent_site=after_attention`` through the real command, from start to samples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig

from lkf_plugin.errors import UserError
from lkf_plugin.hub.export import export_run
from tests.tiny import LKF_OVERRIDES as LKF

Compose = Callable[..., DictConfig]
Run = Callable[[DictConfig], Any]
LATE = "model.latent_site=after_attention"
CHAIN = (
    *LKF,
    LATE,
    "model.latent=chain",
    "model.num_components=1",
    "model.block_components=3",
    "model.block_length=1",
    "loss.backward=drawn",
)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    checkpoint = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=False)
    return dict(checkpoint["state_dict"])


def test_a_chain_trains_resumes_is_measured_and_samples(
    tiny: Compose, run: Run, tmp_path: Path
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    run(tiny(*CHAIN, f"run_dir={whole}", "trainer.max_steps=3"))
    for steps in (1, 3):
        last = (f"trainer.max_steps={steps}", "trainer.val_check_interval=1")
        run(tiny(*CHAIN, f"run_dir={parts}", *last))
    one, other = weights(whole), weights(parts)
    assert all(torch.equal(value, other[name]) for name, value in one.items())
    at = (*CHAIN, f"run_dir={whole}")
    report = run(tiny(*at, "mode=ppl_eval", "eval.steps=[1,2]"))
    assert report["metrics"]["val/nll@1"] > 0
    sampled = run(tiny(*at, "mode=sample_eval"))
    assert sampled["policy"] == "commit"
    with pytest.raises(UserError, match="model.latent_site is after_attention in"):
        run(tiny(*at, "model.latent_site=block", "mode=ppl_eval"))


def test_a_mixture_starts_from_one_component_of_either_site(
    tiny: Compose, run: Run, tmp_path: Path
) -> None:
    run(tiny(*LKF, "model.num_components=1", "training.ema=0"))
    start = f"init.from_checkpoint={tmp_path / 'run' / 'checkpoints' / 'last.ckpt'}"
    run(tiny(*CHAIN, start, f"run_dir={tmp_path / 'chain'}", "trainer.max_steps=1", "optim.lr=0"))
    plain, chain = weights(tmp_path / "run"), weights(tmp_path / "chain")
    trunk = [name for name in plain if ".trunk." in name]
    assert trunk and all(torch.equal(plain[name], chain[name]) for name in trunk)


def test_from_as_many_latents_per_sequence_and_not_across_sites(
    tiny: Compose, run: Run, tmp_path: Path
) -> None:
    run(tiny(*LKF))
    start = f"init.from_checkpoint={tmp_path / 'run' / 'checkpoints' / 'last.ckpt'}"
    tree = ("model.latent=tree", "model.block_components=2", "model.block_length=4")
    run(tiny(*LKF, *tree, LATE, start, f"run_dir={tmp_path / 'tree'}", "trainer.max_steps=1"))
    assert len(weights(tmp_path / "tree")["backbone.latent_emb.weight"]) == 4
    with pytest.raises(UserError, match="model.latent_site is block in"):
        run(tiny(*LKF, LATE, start, f"run_dir={tmp_path / 'late'}"))


def test_an_export_has_the_whole_block_only(tiny: Compose, run: Run, tmp_path: Path) -> None:
    run(tiny(*LKF, LATE, "trainer.max_steps=1"))
    with pytest.raises(UserError, match="has model.latent_site=after_attention"):
        export_run(tmp_path / "run", tmp_path / "out")


@pytest.mark.parametrize("value", ["before", "null", "1"])
def test_another_site(tiny: Compose, run: Run, value: str) -> None:
    with pytest.raises(UserError, match="model.latent_site=.* is unknown: take block or after_att"):
        run(tiny(*LKF, f"model.latent_site={value}"))

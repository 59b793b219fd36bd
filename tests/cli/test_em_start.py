"""``init.latents=em`` through the real command: kept, resumable, refused where it has no sense."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from datasets import Dataset
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from lkf_plugin.corpora import agreetext
from lkf_plugin.errors import UserError
from lkf_plugin.latents.chain import Chain
from lkf_plugin.latents.em import fit
from lkf_plugin.latents.tree import Tree
from lkf_plugin.train import em_start
from tests.tiny import LKF_OVERRIDES as LKF

Compose = Callable[..., DictConfig]
Run = Callable[[DictConfig], Any]
CHAIN = (
    *LKF,
    "model.latent=chain",
    "model.num_components=1",
    "model.block_components=3",
    "model.block_length=1",
    "init.latents=em",
    "init.latents_steps=3",
)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    checkpoint = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=False)
    return dict(checkpoint["state_dict"])


def test_fitted_once_and_gone_on_with(
    tiny: Compose, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits: list[int] = []
    plain = em_start.fitted_law
    monkeypatch.setattr(em_start, "fitted_law", lambda *given: fits.append(1) or plain(*given))
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    run(tiny(*CHAIN, f"run_dir={whole}", "trainer.max_steps=4"))
    run(tiny(*CHAIN, f"run_dir={parts}", "trainer.max_steps=2", "trainer.val_check_interval=2"))
    run(tiny(*CHAIN, f"run_dir={parts}", "trainer.max_steps=4", "trainer.val_check_interval=2"))
    assert len(fits) == 2
    one, other = weights(whole), weights(parts)
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name
    # it did something: not the weights of a run without
    run(tiny(*CHAIN[:-2], f"run_dir={tmp_path / 'without'}", "trainer.max_steps=4"))
    without = weights(tmp_path / "without")
    assert not all(torch.equal(value, without[name]) for name, value in one.items())
    with pytest.raises(UserError, match="init.latents_steps was 3 when the run"):
        run(tiny(*CHAIN, f"run_dir={parts}", "trainer.max_steps=5", "init.latents_steps=4"))
    (parts / em_start.FILE).write_bytes(b"no law")
    with pytest.raises(UserError, match="latents.pt is damaged"):
        run(tiny(*CHAIN, f"run_dir={parts}", "trainer.max_steps=5"))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("init.latents=em",), "this network has none"),
        ((*LKF, "model.num_components=1", "init.latents=em"), "this network has none"),
        ((*LKF, "init.latents=hmm"), "init.latents=hmm is unknown: take null or em"),
        ((*CHAIN, "loss=two_time", "model.trunk=native", "time_conditioning=true"), "loss=mixture"),
        ((*LKF, "model.latent=ring"), "model.latent=ring must be chain, sequence or tree"),
        ((*LKF, "model.block_components=2"), "needs latent=tree or latent=chain"),
        ((*CHAIN, "model.block_length=0"), "model.block_length=0 must be a whole number"),
        ((*CHAIN, "decode.component=1"), "a component from 0 to 0"),
    ],
)
def test_what_does_not_go_together(
    tiny: Compose, run: Run, words: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        run(tiny(*words))


def test_the_best_of_a_few_starts_is_taken() -> None:
    """Seed 7 alone ends in a local optimum of AgreeText, 0.1 nats per token above the best law."""
    x_NL = agreetext.sample(3000, 4, 0)
    prepared = _prepared(x_NL)
    config = OmegaConf.create({"seed": 7, "model": {"trunk": "native"}})
    structure = Tree(4, 2, 8)
    V = prepared.vocab_size
    alone = fit(structure, x_NL, V, period=8, tied=False, seed=7).log_prob(x_NL).mean()
    best = em_start.fitted_law(config, structure, prepared).log_prob(x_NL).mean()
    optimum = agreetext.nelbo_optimum(4)
    assert -alone / 32 > optimum + 0.05
    assert abs(-best / 32 - optimum) < 0.005


def test_blocks_that_cut_units_get_a_law_of_every_position() -> None:
    """Halves of a clause have other words: shared by all blocks they would cost 0.17 nats."""
    prepared = _prepared(agreetext.sample(1000, 4, 0))
    laws = {}
    for trunk in ("native", "matched"):
        config = OmegaConf.create({"seed": 1, "model": {"trunk": trunk}})
        for length in (4, 8):
            law = em_start.fitted_law(config, Chain(4, 2, length), prepared)
            laws[trunk, length] = law.log_emission_PVM.shape[0]
    assert laws == {("native", 4): 32, ("native", 8): 8, ("matched", 4): 1, ("matched", 8): 1}


def _prepared(x_NL: Tensor) -> Any:
    rows = Dataset.from_dict({"input_ids": x_NL.tolist()}).with_format("torch")
    return SimpleNamespace(train=rows, vocab_size=agreetext.MASK_ID + 1)

"""``experiment=upcycle``: from a public MDLM folder or checkpoint to a mixture, on a CPU."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from safetensors.torch import save_file

from lkf_plugin import cli
from lkf_plugin.backbone import MatchedTrunk
from lkf_plugin.checkpoint_file import read_checkpoint
from lkf_plugin.config.start_sizes import start_size
from lkf_plugin.data.agreetext import agreetext_tokenizer
from lkf_plugin.data.tokenizer import token_ids
from lkf_plugin.errors import UserError
from lkf_plugin.runs.preflight import check_before_work
from tests.cli.conftest import Compose, compose

__all__ = ["compose"]

ROOT = Path(__file__).parents[2]
IDS = token_ids(agreetext_tokenizer())
SIZES = {"hidden_size": 24, "cond_dim": 12, "n_blocks": 3, "n_heads": 2}
LENGTH = 32
SMALL = (
    "data=agreetext",
    "data.train_sequences=40",
    "data.valid_sequences=12",
    "model.num_components=3",
    "model.latent_blocks=2",
    "loader.global_batch_size=4",
    "loader.num_workers=0",
    "lr_scheduler.warmup_steps=1",
    "trainer.accelerator=cpu",
    "trainer.devices=1",
    "trainer.precision=32-true",
    "trainer.max_steps=4",
    "trainer.val_check_interval=2",
    "checkpointing.every_n_steps=2",
)


def network() -> MatchedTrunk:
    torch.manual_seed(7)
    trunk = MatchedTrunk(IDS.vocab_size, dropout=0.1, **SIZES)
    with torch.no_grad():
        for weight in trunk.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    return trunk


def named(trunk: MatchedTrunk, prefix: str = "backbone.") -> dict[str, torch.Tensor]:
    return {prefix + name: tensor.clone() for name, tensor in trunk.state_dict().items()}


def hub_folder(folder: Path, weights: str = "model.safetensors", **changes: Any) -> Path:
    """As MDLM's authors lay their models out on the hub."""
    folder.mkdir()
    told = {
        "architectures": ["MDLM"],
        "model_type": "mdlm",
        "vocab_size": IDS.vocab_size,
        "model_length": LENGTH,
        "hidden_dim": SIZES["hidden_size"],
        "cond_dim": SIZES["cond_dim"],
        "n_blocks": SIZES["n_blocks"],
        "n_heads": SIZES["n_heads"],
        "dropout": 0.1,
        "time_conditioning": False,
        "return_dict": False,
    }
    (folder / "config.json").write_text(json.dumps(told | changes))
    state = named(network())
    if weights == "model.safetensors":
        save_file(state, folder / weights)
    else:
        torch.save(state, folder / weights)
    return folder


def places(tmp_path: Path, name: str = "run") -> tuple[str, ...]:
    return (f"run_dir={tmp_path / name}", f"data.cache_dir={tmp_path / 'cache'}")


def settings(tmp_path: Path, start: Path, *overrides: str, run: str = "run") -> tuple[str, ...]:
    given = ("experiment=upcycle", *SMALL, f"init.from_checkpoint={start}", *places(tmp_path, run))
    return (*given, *overrides)


def upcycled(
    compose: Compose, tmp_path: Path, start: Path, *overrides: str, run: str = "run"
) -> dict[str, Any]:
    """Trains, and gives what its last checkpoint holds."""
    cli.run(compose(*settings(tmp_path, start, *overrides, run=run)))
    return read_checkpoint(tmp_path / run / "checkpoints" / "last.ckpt")


@pytest.mark.parametrize("weights", ["model.safetensors", "pytorch_model.bin"])
def test_a_hub_folder_becomes_a_mixture_and_goes_on(
    compose: Compose, tmp_path: Path, weights: str
) -> None:
    """The trunk is the folder's, the sizes too; a run in two parts ends with the same bits."""
    folder = hub_folder(tmp_path / "mdlm", weights)
    whole = upcycled(compose, tmp_path, folder)
    rate, steps = 1e-4, 4
    trunk = named(network(), "backbone.trunk.")
    assert set(trunk) <= set(whole["state_dict"])
    moved = [
        (whole["state_dict"][name] - weight).abs().max().item()
        for name, weight in trunk.items()
        if "rotary" not in name
    ]
    assert 0 < max(moved) < 1.5 * rate * steps  # Adam moves a weight by at most its rate a step
    emb = whole["state_dict"]["backbone.latent_emb.weight"]
    assert emb.shape[0] == 3 and whole["lkf_card"]["process"]["time_conditioning"] is False
    upcycled(compose, tmp_path, folder, "trainer.max_steps=2",
             "lr_scheduler.total_steps=4", run="parts")  # fmt: skip
    parts = upcycled(compose, tmp_path, folder, run="parts")
    assert parts["global_step"] == 4
    for name, tensor in whole["state_dict"].items():
        assert torch.equal(tensor, parts["state_dict"][name]), name


def test_the_first_loss_is_near_the_public_models(compose: Compose, tmp_path: Path) -> None:
    """Without a step, the mixture's val/nll lies within 2 % of the folder's own (latents vary)."""
    folder = hub_folder(tmp_path / "mdlm")
    first = ("trainer.max_steps=1", "optim.lr=1e-12", "trainer.val_check_interval=1")
    lines = {}
    for name, extra in (("mixture", ()), ("mdlm", ("model.num_components=1",))):
        overrides = settings(tmp_path, folder, *first, *extra, run=name)
        lines[name] = cli.run(compose(*overrides))["val/nll"]
    assert lines["mixture"] == pytest.approx(lines["mdlm"], rel=0.02)


def test_a_lightning_checkpoint_of_mdlm_is_imported_first(compose: Compose, tmp_path: Path) -> None:
    trunk = network()
    model = {"length": LENGTH, "dropout": 0.1, **SIZES, "type": "ddit"}
    config = {"backbone": "dit", "parameterization": "subs", "model": model,
              "time_conditioning": False, "T": 0}  # fmt: skip
    shadows = [weight.detach() + 0.01 for weight in trunk.parameters()]
    content = {
        "state_dict": named(trunk),
        "ema": {"decay": 0.9999, "num_updates": 5, "shadow_params": shadows},
        "global_step": 9,
        "hyper_parameters": {"config": OmegaConf.create(config)},
    }
    torch.save(content, tmp_path / "mdlm.ckpt")
    main = runpy.run_path(str(ROOT / "scripts" / "import_checkpoint.py"))["main"]
    start = tmp_path / "imported.ckpt"
    assert main([str(tmp_path / "mdlm.ckpt"), str(start), "--trust-pickle"]) == 0
    found = upcycled(compose, tmp_path, start)
    table = found["state_dict"]["backbone.trunk.vocab_embed.embedding"]
    assert (table - shadows[0]).abs().max() < 6e-4  # the average is what it starts from


def test_other_kinds_of_folders_are_refused(compose: Compose, tmp_path: Path) -> None:
    duo = hub_folder(tmp_path / "duo", model_type="DUO")
    with pytest.raises(UserError, match="a duo model, which has not learnt to fill masks"):
        upcycled(compose, tmp_path, duo)
    with pytest.raises(UserError, match="^init.from_checkpoint=.* config.json cannot be read"):
        (tmp_path / "empty").mkdir()
        upcycled(compose, tmp_path, tmp_path / "empty", "model.n_blocks=1")
    folder = hub_folder(tmp_path / "mdlm")
    with pytest.raises(UserError, match="bring it in with scripts/import_checkpoint.py"):
        check_before_work(compose(*settings(tmp_path, folder, "host=mdlm")))
    small = {name: weight[:50] if "vocab" in name else weight
             for name, weight in named(network()).items()}  # fmt: skip
    small |= {n: w[:50] for n, w in small.items() if "output_layer.linear" in n}
    save_file({n: w.contiguous() for n, w in small.items()}, folder / "model.safetensors")
    with pytest.raises(UserError, match="has 50 tokens and the tokenizer agreetext 88|50 tokens"):
        upcycled(compose, tmp_path, folder)


def test_sizes_are_those_that_the_start_tells(tmp_path: Path) -> None:
    folder = hub_folder(tmp_path / "mdlm", n_blocks="many", cond_dim=None)
    assert start_size("hidden_size", 768, str(folder)) == 24
    assert start_size("length", 1024, str(folder)) == LENGTH
    assert start_size("time_conditioning", True, str(folder)) is False
    assert start_size("hidden_size", 768, str(tmp_path / "nowhere")) == 768
    assert start_size("hidden_size", 768, None) == 768
    for key in ("n_blocks", "cond_dim"):
        with pytest.raises(UserError, match=f"damaged: it has {key}="):
            start_size(key, 12, str(folder))
    sedd = tmp_path / "sedd"
    sedd.mkdir()
    (sedd / "config.json").write_text('{"model": {"hidden_size": 16, "length": 64}, "tokens": 9}')
    assert start_size("hidden_size", 768, str(sedd)) == 16 and start_size("dropout", 0.1, sedd)
    with pytest.raises(UserError, match=r"give model\.n_heads="):
        start_size("n_heads", 12, str(sedd))
    (sedd / "config.json").write_text("[1]")
    with pytest.raises(UserError, match="holds no object"):
        start_size("n_heads", 12, str(sedd))

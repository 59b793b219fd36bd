"""Tiny baselines: as modules on hand, and as runs through the command line's own entry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, open_dict

from lkf_plugin import cli
from lkf_plugin.config import register_resolvers
from lkf_plugin.data.agreetext import agreetext_tokenizer
from lkf_plugin.methods.baseline import Baseline
from lkf_plugin.runs.common import build_module
from tests.methods import upstream

TINY = (
    "model=tiny",
    "model.hidden_size=16",
    "model.n_blocks=2",
    "model.n_heads=2",
    "model.cond_dim=8",
    "model.dropout=0.0",
    "data=agreetext",
    "data.train_sequences=40",
    "data.valid_sequences=12",
    "loader.global_batch_size=4",
    "loader.num_workers=0",
    "lr_scheduler.num_warmup_steps=1",
    "optim.lr=1e-2",
    "trainer.accelerator=cpu",
    "trainer.devices=1",
    "trainer.precision=32-true",
    "trainer.max_steps=4",
    "trainer.val_check_interval=2",
    "trainer.log_every_n_steps=1",
    "sampling.steps=3",
    "sampling.num_sample_batches=1",
)
LATENT = (  # over TINY, with method=auto or another of the latent kernel's
    "host=builtin",
    "model=lkf-tiny",
    "loss=mixture",
    "model.num_components=3",
    *(word for word in TINY if word.startswith("model.")),
    "model.length=32",
)


@pytest.fixture
def in_float64() -> Iterator[None]:
    """New tensors are float64, for originals that are compared so."""
    with upstream.working_in(torch.float64):
        yield


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """``trained("mdlm")``: last checkpoint of a tiny run, made once and only to be read."""
    checkpoints: dict[tuple[str, ...], Path] = {}

    def get(name: str, *overrides: str) -> Path:
        key = (name, *overrides)
        if key not in checkpoints:
            register_resolvers()
            folder = tmp_path_factory.mktemp(f"trained-{name}")
            places = (f"run_dir={folder / 'run'}", f"data.cache_dir={folder / 'cache'}")
            with initialize_config_dir(str(cli.config_folder()), version_base="1.3"):
                cli.run(compose("config", [*TINY, f"method={name}", *overrides, *places]))
            checkpoints[key] = folder / "run" / "checkpoints" / "last.ckpt"
        return checkpoints[key]

    return get


@pytest.fixture
def config_of(tmp_path: Path) -> Callable[..., DictConfig]:
    """``config_of("sedd", "key=value", ...)``: a tiny run in ``tmp_path``."""
    register_resolvers()
    places = (f"run_dir={tmp_path / 'run'}", f"data.cache_dir={tmp_path / 'cache'}")

    def composed(name: str, *overrides: str) -> DictConfig:
        with initialize_config_dir(str(cli.config_folder()), version_base="1.3"):
            config = compose("config", [*TINY, f"method={name}", *places, *overrides])
        with open_dict(config):
            config.pop("hydra", None)
        return config

    return composed


@pytest.fixture
def module_of(config_of: Callable[..., DictConfig]) -> Callable[..., Baseline]:
    """A float64 module in evaluation mode whose every weight is random."""

    def build(name: str, *overrides: str) -> Baseline:
        torch.manual_seed(0)
        module = build_module(config_of(name, *overrides), agreetext_tokenizer())
        with torch.no_grad():
            for weight in module.backbone.parameters():
                weight.add_(0.2 * torch.randn_like(weight))
        module.backbone.double()
        return module.eval()

    return build


@pytest.fixture
def runs(config_of: Callable[..., DictConfig], tmp_path: Path) -> Callable[..., DictConfig]:
    """``runs("sdtt", "folder", ...)``: a tiny run in that folder."""
    return lambda name, folder, *words: config_of(name, f"run_dir={tmp_path / folder}", *words)

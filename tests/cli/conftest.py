"""Composing the real configuration, and running it in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from omegaconf import DictConfig

from lkf_plugin import cli
from lkf_plugin.config import register_resolvers

TINY = (
    "host=builtin",
    "model.hidden_size=16",
    "model.n_blocks=2",
    "model.n_heads=2",
    "model.cond_dim=8",
    "data=agreetext",
    "data.train_sequences=40",
    "data.valid_sequences=12",
    "loader.global_batch_size=4",
    "loader.num_workers=0",
    "trainer.accelerator=cpu",
    "trainer.devices=1",
    "trainer.precision=32-true",
    "trainer.max_steps=4",
    "trainer.val_check_interval=2",
    "trainer.log_every_n_steps=1",
    "sampling.steps=4",
)

Compose = Callable[..., DictConfig]


@pytest.fixture
def compose() -> Compose:
    register_resolvers()

    def composed(*overrides: str) -> DictConfig:
        with initialize_config_dir(str(cli.config_folder()), version_base="1.3"):
            return hydra_compose("config", overrides=list(overrides))

    return composed


@pytest.fixture
def tiny(compose: Compose, tmp_path: Path) -> Compose:
    """A config that trains in seconds, in ``tmp_path``."""
    places = (f"run_dir={tmp_path / 'run'}", f"data.cache_dir={tmp_path / 'cache'}")
    return lambda *overrides: compose(*TINY, *places, *overrides)


@pytest.fixture
def run() -> Callable[[DictConfig], Any]:
    return cli.run

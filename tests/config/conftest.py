"""Composing the real configuration, quickly and often."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig

from lkf_plugin import cli
from lkf_plugin.config import register_resolvers

Compose = Callable[..., DictConfig]


@pytest.fixture(scope="module")
def compose() -> Iterator[Compose]:
    register_resolvers()
    with initialize_config_dir(str(cli.config_folder()), version_base="1.3"):
        yield lambda *overrides: hydra_compose("config", overrides=list(overrides))
    GlobalHydra.instance().clear()

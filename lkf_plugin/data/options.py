"""The ``data`` group of a configuration as checked settings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from lkf_plugin.data.corpus import CORPORA, CorpusSettings
from lkf_plugin.errors import UserError
from lkf_plugin.settings.sentences import read_group, show


def launch_directory() -> Path:
    """Where the user started the program, also after Hydra has changed directory."""
    from hydra.core.hydra_config import HydraConfig

    if HydraConfig.initialized():
        return Path(HydraConfig.get().runtime.cwd)
    return Path.cwd()


def absolute(path: str) -> Path:
    """Expands ``~`` and makes a path absolute relative to the launch directory."""
    return Path(os.path.normpath(launch_directory() / Path(path).expanduser()))


def read_options(config: DictConfig) -> tuple[CorpusSettings, int]:
    """Reads and checks ``config.data`` and ``config.model.length``.

    Args:
        config: The whole configuration.

    Returns:
        The settings of the corpus and the sequence length L.

    Raises:
        UserError: An option is unknown to the corpus kind, missing, or has an illegal value.
    """
    data = OmegaConf.to_container(config.data, resolve=True)
    assert isinstance(data, Mapping)
    given = {str(key): value for key, value in data.items() if value != "???"}
    settings = settings_of(given)
    length = config.model.length
    settings.check(length)
    return settings, length


def settings_of(data: Mapping[str, object]) -> CorpusSettings:
    """A ``data`` group in the types of its kind; rules between settings are not checked.

    Raises:
        UserError: An option is unknown to the corpus kind, missing, or has an illegal value.
    """
    kind = data.get("kind")
    if not isinstance(kind, str) or ("." not in kind and kind not in CORPORA):
        raise UserError(f"data.kind={show(kind)} is unknown: take one of {', '.join(CORPORA)}.")
    return read_group(CORPORA[kind].Settings, data, "data", whose=f"data.kind={kind}")

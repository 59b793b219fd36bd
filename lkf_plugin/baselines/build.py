"""From a configuration to a baseline's module."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig

from lkf_plugin.baselines.ar import AR
from lkf_plugin.baselines.base import Baseline
from lkf_plugin.baselines.duo import DUO
from lkf_plugin.baselines.mdlm import MDLM
from lkf_plugin.baselines.sedd import SEDD
from lkf_plugin.baselines.settings import baseline_name

CLASSES: dict[str, type[Baseline]] = {"ar": AR, "mdlm": MDLM, "sedd": SEDD, "duo": DUO}


def build_baseline(config: DictConfig, tokenizer: Any) -> Baseline:
    """The module of ``baseline.name``."""
    return CLASSES[baseline_name(config)](config, tokenizer)

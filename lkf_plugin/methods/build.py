"""From a configuration to a baseline's module."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig

from lkf_plugin.methods.ar import AR
from lkf_plugin.methods.baseline import Baseline
from lkf_plugin.methods.duo import DUO
from lkf_plugin.methods.mdlm import MDLM
from lkf_plugin.methods.sedd import SEDD
from lkf_plugin.methods.settings import baseline_name

CLASSES: dict[str, type[Baseline]] = {"ar": AR, "mdlm": MDLM, "sedd": SEDD, "duo": DUO}


def build_baseline(config: DictConfig, tokenizer: Any) -> Baseline:
    """The module of ``baseline.name``."""
    return CLASSES[baseline_name(config)](config, tokenizer)

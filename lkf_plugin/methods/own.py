"""The model's own method: the latent kernel, or MDLM's module on the built-in host."""

from __future__ import annotations

from typing import Any

from lkf_plugin.host.ancestral import PREDICTORS
from lkf_plugin.host.builtin import Diffusion
from lkf_plugin.methods.lkf import bind
from lkf_plugin.methods.method import LKF, METHODS, NONE, Method


def build_own(config: Any, tokenizer: Any) -> Diffusion:
    """MDLM's twin, with the latent-kernel mixin for ``model.type=lkf``."""
    module = bind(Diffusion) if config.model.type == LKF else Diffusion
    return module(config, tokenizer)


OWN = Method(build_own, predictors=PREDICTORS, network="own", any_times=True)
METHODS.add(NONE)(OWN)
METHODS.add(LKF)(OWN)

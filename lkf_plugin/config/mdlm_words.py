"""Values that MDLM's own keys may have, here or in its code."""

from __future__ import annotations

from lkf_plugin.methods.method import METHODS

MDLM_PREDICTORS = ("ddpm_cache", "ddpm", "analytic")
MDLM_PARAMETERIZATIONS = ("subs", "d3pm", "sedd", "ar")
BACKBONES = ("dit", "dimamba", "ar", "hf_dit")


def known_values(key: str) -> tuple[str, ...]:
    """Values of a key of the process: MDLM's own and those of the methods."""
    own = MDLM_PARAMETERIZATIONS if key == "parameterization" else ()
    values = [METHODS[name].process.get(key) for name in METHODS]
    return tuple(dict.fromkeys((*own, *(str(one) for one in values if one is not None))))


def known_predictors() -> tuple[str, ...]:
    """Values of ``sampling.predictor``."""
    own = [one for name in METHODS for one in METHODS[name].predictors]
    return tuple(dict.fromkeys((*MDLM_PREDICTORS, *own)))

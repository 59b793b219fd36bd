"""What each method is in MDLM's words: its process and its samplers. Plain facts, no imports."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, OmegaConf

NONE = "none"
BASELINES = ("ar", "mdlm", "sedd", "duo")

# MDLM's keys as each method has them.
PROCESS: dict[str, dict[str, Any]] = {
    NONE: {"parameterization": "subs", "diffusion": "absorbing_state"},
    "ar": {"parameterization": "ar", "diffusion": "absorbing_state"},
    "mdlm": {"parameterization": "subs", "diffusion": "absorbing_state"},
    "sedd": {
        "parameterization": "sedd",
        "diffusion": "absorbing_state",
        "time_conditioning": True,
    },
    "duo": {"parameterization": "mean", "diffusion": "uniform_state", "time_conditioning": True},
}
PREDICTORS = {
    NONE: ("ddpm_cache", "ddpm"),
    "mdlm": ("ddpm_cache", "ddpm"),
    "sedd": ("analytic", "euler"),
    "duo": ("ancestral",),
}

# What MDLM's own code has.
MDLM_PREDICTORS = ("ddpm_cache", "ddpm", "analytic")
MDLM_PARAMETERIZATIONS = ("subs", "d3pm", "sedd", "ar")
BACKBONES = ("dit", "dimamba", "ar", "hf_dit")

PARAMETERIZATIONS = tuple(
    dict.fromkeys((*MDLM_PARAMETERIZATIONS, *(one["parameterization"] for one in PROCESS.values())))
)
DIFFUSIONS = tuple(dict.fromkeys(one["diffusion"] for one in PROCESS.values()))


def baseline_name(config: DictConfig) -> str:
    """``none`` or the name of a baseline; runs older than the group have none."""
    return OmegaConf.select(config, "baseline.name", default=NONE)

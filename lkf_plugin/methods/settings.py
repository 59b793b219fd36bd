"""What a configuration with a baseline must say, checked before anything is loaded."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, OmegaConf

from lkf_plugin.errors import UserError

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
MDLM_PREDICTORS = ("ddpm_cache", "ddpm", "analytic")


def baseline_name(config: DictConfig) -> str:
    """``none`` or the name of a baseline; runs older than the group have none."""
    return OmegaConf.select(config, "baseline.name", default=NONE)


def check_baseline(config: DictConfig, host: str) -> None:
    """Refuses a baseline that cannot run as set.

    Raises:
        UserError: one sentence that says what to set.
    """
    name = baseline_name(config)
    if name == NONE:
        return
    if host != "builtin":
        raise UserError(f"baseline={name} runs on the built-in host: set host=builtin.")
    if config.model.type != "ddit":
        raise UserError(
            f"baseline={name} has a network without a latent: take model=small, tiny or ar, not a "
            "latent-kernel model."
        )
    trunk = config.model.get("trunk", "matched")
    if trunk not in ("matched", "native"):
        raise UserError(f"model.trunk={trunk} is unknown: take matched or native.")
    _check_decoding(config, name)
    if name == "mdlm":
        return
    if config.T > 0 or config.training.change_of_variables or config.training.importance_sampling:
        raise UserError(
            f"baseline={name} has continuous, uniform times: set T=0, "
            "training.change_of_variables=false and training.importance_sampling=false."
        )
    if name == "ar" and config.baseline.start not in ("mask", "data"):
        raise UserError(f"baseline.start={config.baseline.start} is unknown: take mask or data.")
    if name == "duo":
        _check_duo(config)


def check_process(config: DictConfig, host: str) -> None:
    """MDLM's keys must be those of the method, and the predictor one that it has.

    Raises:
        UserError: names the key.
    """
    name = baseline_name(config)
    said = "without a baseline" if name == NONE else f"for baseline={name}"
    process = PROCESS[name]
    if host == "mdlm":  # it has parameterizations of its own, and no other noise
        process, said = {"diffusion": "absorbing_state"}, "in MDLM"
    for key, wanted in process.items():
        if config[key] != wanted:
            owners = [n for n, p in PROCESS.items() if p.get(key) == config[key] and n != NONE]
            other = f"take baseline={owners[0]}" if owners else "take host=mdlm for MDLM's own"
            if host != "mdlm" and owners:
                other += " or host=mdlm"
            told = str(wanted).lower() if isinstance(wanted, bool) else wanted
            raise UserError(f"{key} is {told} {said}, not {config[key]}: set it or {other}.")
    known = MDLM_PREDICTORS if host == "mdlm" else PREDICTORS.get(name)
    if known and config.sampling.predictor not in known:
        raise UserError(
            f"sampling.predictor={config.sampling.predictor} is not there {said}: "
            f"take {' or '.join(known)}" + (", or host=mdlm." if host != "mdlm" else ".")
        )


def _check_decoding(config: DictConfig, name: str) -> None:
    decode = config.decode
    if decode.policy not in ("auto", "mdlm", "best_of_n"):
        raise UserError(
            f"decode={decode.policy} needs components, which baseline={name} has not: take "
            "decode=auto (its own sampler) or decode=best_of_n."
        )
    if decode.policy == "best_of_n" and decode.selector != "nelbo":
        raise UserError(
            f"decode.selector={decode.selector} is for the latent-kernel network: take nelbo, the "
            f"likelihood of baseline={name}."
        )
    if config.sampling.prompt is not None and name in ("ar", "duo"):
        raise UserError(f"baseline={name} cannot fill masks: set sampling.prompt=null.")


def _check_duo(config: DictConfig) -> None:
    given = config.baseline
    if given.last_pass not in ("greedy", "ancestral", "none"):
        raise UserError(
            f"baseline.last_pass={given.last_pass} is unknown: take greedy, ancestral or none."
        )
    curriculum = given.curriculum
    if not 0 <= curriculum.start <= curriculum.end:
        raise UserError(
            f"baseline.curriculum.start={curriculum.start} must lie between 0 and "
            f"baseline.curriculum.end={curriculum.end} (end=0 turns the curriculum off)."
        )
    if curriculum.columns < 1:
        raise UserError(f"baseline.curriculum.columns={curriculum.columns} must be at least 1.")
    low, high = curriculum.gamma_min, curriculum.gamma_max
    if low is not None and high is not None and not low < high:
        raise UserError(
            f"baseline.curriculum.gamma_min={low} must lie below gamma_max={high}: noise grows "
            "with gamma."
        )

"""Rules of the methods beside the model's own: their networks, samplers and times."""

from __future__ import annotations

from lkf_plugin.config.mdlm_words import MDLM_PREDICTORS
from lkf_plugin.config.network import DDIT, LKF
from lkf_plugin.config.schema import Settings
from lkf_plugin.errors import UserError
from lkf_plugin.methods.method import METHODS, NONE
from lkf_plugin.settings.fields import alternatives
from lkf_plugin.settings.sentences import show


def check_method(settings: Settings, host: str) -> None:
    """Refuses a method that cannot run as set.

    Raises:
        UserError: one sentence that says what to set.
    """
    name, training = settings.method.name, settings.training
    method = METHODS[name]
    if method.network == "own":
        return
    if host != "builtin":
        raise UserError(f"method={name} runs on the built-in host: set host=builtin.")
    if method.network == "latent":
        if settings.model.type != LKF:
            raise UserError(
                f"method={name} has a latent-kernel network: take model=lkf, lkf-small or "
                "lkf-tiny, and loss=mixture."
            )
    elif settings.model.type != DDIT:
        raise UserError(
            f"method={name} has a network without a latent: take model=small, tiny or ar, not a "
            "latent-kernel model."
        )
    else:
        _check_decoding(settings, method.fills_masks)
    plain = settings.process.T == 0 and not (
        training.change_of_variables or training.importance_sampling
    )
    if not method.any_times and not plain:
        raise UserError(
            f"method={name} has continuous, uniform times: set T=0, "
            "training.change_of_variables=false and training.importance_sampling=false."
        )
    method.check(settings)


def check_process(settings: Settings, host: str) -> None:
    """MDLM's keys must be those of the method, and the predictor one that it has.

    Raises:
        UserError: names the key.
    """
    name, process = settings.method.name, settings.process
    method = METHODS[name]
    whose = "for the model's own method" if name == NONE else f"for method={name}"
    wanted = method.process
    if host == "mdlm":  # it has parameterizations of its own, and no other noise
        wanted, whose = {"diffusion": "absorbing_state"}, "in MDLM"
    for key, right in wanted.items():
        given = getattr(process, key)
        if given != right:
            owners = [n for n in METHODS if METHODS[n].process.get(key) == given]
            owners = [n for n in owners if METHODS[n].network != "own"]
            owners.sort(key=lambda n: "teacher" in METHODS[n].settings.model_fields)  # first alone
            other = f"take method={owners[0]}" if owners else "take host=mdlm for MDLM's own"
            if host != "mdlm" and owners:
                other += " or host=mdlm"
            raise UserError(
                f"{key} is {show(right)} {whose}, not {show(given)}: set it or {other}."
            )
    known = MDLM_PREDICTORS if host == "mdlm" else method.predictors
    if known and settings.sampling.predictor not in known:
        raise UserError(
            f"sampling.predictor={settings.sampling.predictor} is not there {whose}: "
            f"take {alternatives(known)}" + (", or host=mdlm." if host != "mdlm" else ".")
        )


def _check_decoding(settings: Settings, fills_masks: bool) -> None:
    decode, name = settings.decode, settings.method.name
    if decode.policy not in ("auto", "mdlm", "best_of_n"):
        raise UserError(
            f"decode={decode.policy} needs components, which method={name} has not: take "
            "decode=auto (its own sampler) or decode=best_of_n."
        )
    if decode.policy == "best_of_n" and decode.selector != "nelbo":
        raise UserError(
            f"decode.selector={decode.selector} is for the latent-kernel network: take nelbo, the "
            f"likelihood of method={name}."
        )
    if settings.sampling.prompt is not None and not fills_masks:
        raise UserError(f"method={name} cannot fill masks: set sampling.prompt=null.")

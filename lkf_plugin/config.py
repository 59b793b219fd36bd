"""The configuration: pure resolvers, checks that speak in sentences, absolute paths."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from lkf_plugin.decode.compiled import MODES
from lkf_plugin.errors import UserError
from lkf_plugin.methods.settings import BASELINES, NONE, check_baseline, check_process
from lkf_plugin.token_head.logprob import BACKENDS

CHOICES: dict[str, tuple[Any, ...]] = {
    "mode": ("train", "ppl_eval", "sample_eval"),
    "host": ("auto", "mdlm", "builtin"),
    "model.type": ("ddit", "lkf"),
    "loss.name": ("mdlm", "mixture", "two_time"),
    "loss.token_head": ("auto", "mdlm", *BACKENDS),
    "loss.backward": ("dense", "two_phase", "drawn"),
    "decode.policy": (
        "auto",
        "mdlm",
        "commit",
        "best_of_m",
        "best_of_n",
        "halving",
        "deferred",
        "probe",
        "solo",
        "calibrated",
    ),
    "decode.selector": ("nelbo", "evidence", "softmax", "centred", "random"),
    "optim.name": ("adamw", "muon"),
    "noise.type": ("loglinear",),
    "diffusion": ("absorbing_state", "uniform_state"),
    "baseline.name": (NONE, *BASELINES),
    "sampling.predictor": ("ddpm_cache", "ddpm", "analytic", "euler", "ancestral"),
    "sampling.compile_mode": (None, *MODES),
}
POSITIVE = (
    "model.hidden_size",
    "model.n_blocks",
    "model.n_heads",
    "model.length",
    "model.cond_dim",
    "trainer.devices",
    "trainer.num_nodes",
    "loader.global_batch_size",
    "loader.batch_size",
    "loader.eval_batch_size",
    "sampling.steps",
    "sampling.num_sample_batches",
    "trainer.max_steps",
    "trainer.accumulate_grad_batches",
    "eval.perplexity_batch_size",
    "loss.chunk_rows",
)
OWN_PATHS = (
    "run_dir",
    "checkpointing.save_dir",
    "checkpointing.resume_ckpt_path",
    "eval.checkpoint_path",
    "init.from_checkpoint",
)


# --- resolvers ---------------------------------------------------------------------------------


def multiply(*factors: float) -> float:
    """Product of numbers."""
    product: float = 1
    for factor in factors:
        product *= factor
    return product


def divide_up(amount: int, by: int) -> int:
    """Quotient of whole numbers, rounded up."""
    return -(-amount // by)


def cpu_count(at_most: int | None = None) -> int:
    """CPUs that this process may use, ``at_most`` of them."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(usable or 1, at_most or usable or 1)


def device_count() -> int:
    """GPUs, or one CPU."""
    return max(torch.cuda.device_count(), 1)


def default_accelerator() -> str:
    """``cuda`` where there is one, else ``cpu``."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def default_precision() -> str:
    """``bf16-mixed`` on a GPU, ``32-true`` on a CPU."""
    return "bf16-mixed" if torch.cuda.is_available() else "32-true"


RESOLVERS: dict[str, Callable[..., Any]] = {
    "mul": multiply,
    "div_up": divide_up,
    "cpu_count": cpu_count,
    "device_count": device_count,
    "accelerator": default_accelerator,
    "precision": default_precision,
    "cwd": os.getcwd,
}


def register_resolvers() -> None:
    """Makes the functions above available as ``${name:...}``. None of them evaluates code."""
    for name, function in RESOLVERS.items():
        OmegaConf.register_new_resolver(name, function, replace=True)


# --- checks ------------------------------------------------------------------------------------


def validate(config: DictConfig, host: str) -> None:
    """Refuses what cannot run, before anything is loaded.

    Args:
        config: the composed config.
        host: ``builtin`` or ``mdlm``; MDLM can do some things that the built-in host cannot.

    Raises:
        UserError: one sentence that says what to set.
    """
    try:
        _check_values(config)
        OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as error:
        told = str(error).splitlines()[0]
        raise UserError(f"{error.full_key} cannot be worked out: {told}") from error
    _check_model(config)
    _check_loss(config)
    _check_training(config)
    _check_sampling(config)
    check_baseline(config, host)
    check_process(config, host)
    if host == "builtin":
        _check_builtin(config)


def _check_values(config: DictConfig) -> None:
    for key in POSITIVE:
        value = OmegaConf.select(config, key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UserError(f"{key}={value} must be a whole number of at least 1.")
    for key, allowed in CHOICES.items():
        value = OmegaConf.select(config, key, default=allowed[0])  # not every loss has every key
        if value not in allowed:
            raise UserError(f"{key}={value} is unknown: take {_alternatives(allowed)}.")


def _alternatives(allowed: tuple[Any, ...]) -> str:
    *first, last = ("null" if value is None else str(value) for value in allowed)
    return f"{', '.join(first)} or {last}" if first else last


def _check_model(config: DictConfig) -> None:
    model = config.model
    if model.hidden_size % model.n_heads:
        raise UserError(
            f"model.hidden_size={model.hidden_size} must be a multiple of "
            f"model.n_heads={model.n_heads}."
        )
    if (model.hidden_size // model.n_heads) % 2:
        raise UserError(
            f"model.hidden_size / model.n_heads = {model.hidden_size // model.n_heads} must be "
            "even, for the rotary positions."
        )
    if not 0 <= model.dropout < 1:
        raise UserError(f"model.dropout={model.dropout} must lie in [0, 1).")
    if model.type != "lkf":
        return
    if not isinstance(model.num_components, int) or model.num_components < 1:
        raise UserError(f"model.num_components={model.num_components} must be at least 1 (MDLM).")
    if not 1 <= model.latent_blocks <= model.n_blocks:
        raise UserError(
            f"model.latent_blocks={model.latent_blocks} must lie between 1 and "
            f"model.n_blocks={model.n_blocks}."
        )
    if model.trunk not in ("matched", "native"):
        raise UserError(f"model.trunk={model.trunk} is unknown: take matched or native.")


def _check_loss(config: DictConfig) -> None:
    model, loss = config.model, config.loss
    if model.type == "ddit" and loss.name != "mdlm":
        raise UserError(
            f"loss={loss.name} needs the latent-kernel network: take model=lkf (or lkf-small, "
            "lkf-tiny), or loss=mdlm for MDLM's own network."
        )
    if model.type == "lkf" and loss.name == "mdlm":
        raise UserError(
            "loss=mdlm trains MDLM's own network: take loss=mixture with model=lkf "
            "(the same numbers at model.num_components=1)."
        )
    if config.T > 0 and loss.name != "mdlm":
        raise UserError(
            f"T={config.T} is for loss=mdlm: set T=0 (continuous time) for loss={loss.name}."
        )
    if loss.name == "mixture":
        _check_backward(config)
    if loss.name == "two_time":
        if model.trunk != "native" or not config.time_conditioning:
            raise UserError(
                "loss=two_time tells the network both times: set model.trunk=native and "
                "time_conditioning=true."
            )
        if loss.form not in ("learned", "analytic"):
            raise UserError(f"loss.form={loss.form} is unknown: take learned or analytic.")
        if not 0 < loss.t_max < 1:
            raise UserError(f"loss.t_max={loss.t_max} must lie between 0 and 1.")
    if config.training.change_of_variables and config.training.importance_sampling:
        raise UserError(
            "training.change_of_variables and training.importance_sampling exclude each other: "
            "they are two ways to the same times."
        )


def _check_backward(config: DictConfig) -> None:
    loss, M = config.loss, config.model.num_components
    if M > 1 and loss.backward != "dense" and loss.token_head == "mdlm":
        raise UserError(
            f"loss.backward={loss.backward} gathers positions, which loss.token_head=mdlm does "
            "not: take loss.token_head=auto, or loss.backward=dense."
        )
    if loss.backward == "two_phase" and not 0 <= loss.threshold < 1 / M:
        raise UserError(
            f"loss.threshold={loss.threshold} must lie in [0, 1 / M), so that at least one "
            "component of every sequence is trained."
        )
    if loss.backward == "drawn":
        if isinstance(loss.drawn, bool) or not isinstance(loss.drawn, int) or loss.drawn < 1:
            raise UserError(f"loss.drawn={loss.drawn} must be a whole number of at least 1.")
        if not 0 <= loss.keep_above <= 1:
            raise UserError(f"loss.keep_above={loss.keep_above} must lie between 0 and 1.")


def _check_training(config: DictConfig) -> None:
    trainer, loader = config.trainer, config.loader
    together = (
        loader.batch_size * trainer.devices * trainer.num_nodes * trainer.accumulate_grad_batches
    )
    if together != loader.global_batch_size:
        raise UserError(
            f"loader.global_batch_size={loader.global_batch_size} is not loader.batch_size="
            f"{loader.batch_size} x {trainer.devices * trainer.num_nodes} device(s) x "
            f"trainer.accumulate_grad_batches={trainer.accumulate_grad_batches} = {together}: "
            "choose sizes that fit."
        )
    if not 0 <= config.training.ema <= 1:
        raise UserError(f"training.ema={config.training.ema} must lie between 0 (none) and 1.")
    if not 0 < config.training.sampling_eps < 1:
        raise UserError(
            f"training.sampling_eps={config.training.sampling_eps} must lie between 0 and 1."
        )


def _check_sampling(config: DictConfig) -> None:
    model, policy = config.model, config.decode.policy
    if config.sampling.compile_mode is None:
        return
    single = policy == "auto" and model.get("num_components") == 1
    if model.type != "lkf" or config.baseline.name != NONE or policy == "mdlm" or single:
        raise UserError(
            f"sampling.compile_mode={config.sampling.compile_mode} compiles the rollouts of "
            "model=lkf: take decode=commit or another policy of its own, or "
            "sampling.compile_mode=null for MDLM's sampler and the baselines."
        )


def _check_builtin(config: DictConfig) -> None:
    trainer = config.trainer
    if config.backbone != "dit" or config.subs_masking:
        raise UserError(
            "The built-in host has backbone=dit without subs_masking: take host=mdlm for MDLM's "
            "others."
        )
    if config.sampling.semi_ar:
        raise UserError("sampling.semi_ar is not in the built-in host: take host=mdlm.")
    if config.model.tie_word_embeddings:
        raise UserError(
            "model.tie_word_embeddings=true has no effect in MDLM's network: set it to false."
        )
    if trainer.limit_train_batches != 1.0:
        raise UserError(
            "trainer.limit_train_batches has no meaning on an endless stream of batches: "
            "limit the run with trainer.max_steps."
        )
    every = trainer.val_check_interval
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise UserError(
            f"trainer.val_check_interval={every} must be a whole number of micro-batches "
            "(trainer.limit_val_batches=0 turns validation off)."
        )
    if every % trainer.accumulate_grad_batches:
        raise UserError(
            f"trainer.val_check_interval={every} must be a multiple of "
            f"trainer.accumulate_grad_batches={trainer.accumulate_grad_batches}, so that "
            "validation falls between two steps."
        )
    if trainer.check_val_every_n_epoch is not None:
        raise UserError(
            "trainer.check_val_every_n_epoch must be null: an endless stream of batches has no "
            "epochs, trainer.val_check_interval decides."
        )
    if "FSDP" in config.strategy["_target_"] and config.training.ema > 0:
        raise UserError(
            "strategy=fsdp has no weight average: set training.ema=0 or take strategy=ddp."
        )


# --- paths -------------------------------------------------------------------------------------


def resolve_paths(config: DictConfig, launch_folder: str | Path) -> None:
    """Makes our own paths absolute, relative to where the command was typed; in place.

    Paths inside ``data`` are the data part's. A judge or tokenizer that is the name of a folder
    here becomes that folder's path; any other name is left to be looked up as a name.
    """
    with open_dict(config):
        for key in OWN_PATHS:
            value = OmegaConf.select(config, key)
            if value and "://" not in str(value):
                OmegaConf.update(config, key, str(_absolute(value, launch_folder)))
        judge = config.eval.gen_ppl_eval_model_name_or_path
        if judge and _absolute(judge, launch_folder).is_dir():
            config.eval.gen_ppl_eval_model_name_or_path = str(_absolute(judge, launch_folder))


def _absolute(path: str, launch_folder: str | Path) -> Path:
    return Path(os.path.normpath(Path(launch_folder) / Path(path).expanduser()))

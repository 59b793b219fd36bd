"""Rules between settings; what one setting alone may be stands in its type."""

from __future__ import annotations

import torch

from lkf_plugin.config.method_rules import check_method, check_process
from lkf_plugin.config.network import DDIT, LKF, LatentKernelNetwork
from lkf_plugin.config.running import CUDA, HALF, OWN_ARGUMENTS, SINGLE
from lkf_plugin.config.schema import Settings
from lkf_plugin.config.training import CosineDecayWarmup
from lkf_plugin.decode.registry import AUTO, HOST_SAMPLER
from lkf_plugin.errors import UserError
from lkf_plugin.latents.structure import build_structure
from lkf_plugin.methods.method import NONE
from lkf_plugin.objective.objective import OBJECTIVES
from lkf_plugin.settings.sentences import show


def check_rules(settings: Settings, host: str) -> None:
    """Refuses settings that exclude each other, or that the host has not.

    Args:
        settings: typed settings.
        host: ``builtin`` or ``mdlm``; MDLM can do some things that the built-in host cannot.

    Raises:
        UserError: one sentence that says what to set.
    """
    _check_network(settings)
    _check_loss(settings)
    _check_portions(settings)
    _check_machine(settings)
    _check_sampling(settings)
    _check_replay(settings)
    check_method(settings, host)
    check_process(settings, host)
    if host == "builtin":
        _check_builtin(settings)
    else:
        _check_mdlm(settings)


def _check_network(settings: Settings) -> None:
    model = settings.model
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
    if isinstance(model, LatentKernelNetwork):
        if model.latent_blocks > model.n_blocks:
            raise UserError(
                f"model.latent_blocks={model.latent_blocks} must lie between 1 and "
                f"model.n_blocks={model.n_blocks}."
            )
        build_structure(model.model_dump())
    _check_latents(settings)
    if model.tie_word_embeddings and settings.process.backbone == "dit":
        raise UserError(
            "model.tie_word_embeddings=true has no effect in MDLM's network: set it to false."
        )


def _check_latents(settings: Settings) -> None:
    model, latents = settings.model, settings.init.latents
    if latents is None:
        return
    if not isinstance(model, LatentKernelNetwork) or model.components == 1:
        raise UserError(
            f"init.latents={latents} starts latents, and this network has none: take model=lkf "
            "with more than one component, or leave it out."
        )
    if settings.loss.name != "mixture":
        raise UserError(
            f"init.latents={latents} warms up loss=mixture: take it, or leave init.latents out."
        )


def _check_loss(settings: Settings) -> None:
    model, loss, training = settings.model, settings.loss, settings.training
    if model.type == DDIT and loss.name != "mdlm":
        raise UserError(
            f"loss={loss.name} needs the latent-kernel network: take model=lkf (or lkf-small, "
            "lkf-tiny), or loss=mdlm for MDLM's own network."
        )
    if model.type == LKF and loss.name == "mdlm":
        raise UserError(
            "loss=mdlm trains MDLM's own network: take loss=mixture with model=lkf "
            "(the same numbers at model.num_components=1)."
        )
    if settings.process.T > 0 and loss.name != "mdlm":
        raise UserError(
            f"T={settings.process.T} is for loss=mdlm: set T=0 (continuous time) for "
            f"loss={loss.name}."
        )
    if loss.name != "mdlm":
        OBJECTIVES[loss.name].check(loss, model, settings.process)
    if training.change_of_variables and training.importance_sampling:
        raise UserError(
            "training.change_of_variables and training.importance_sampling exclude each other: "
            "they are two ways to the same times."
        )
    schedule = settings.lr_scheduler
    if isinstance(schedule, CosineDecayWarmup) and schedule.warmup_steps >= schedule.total_steps:
        raise UserError(
            f"lr_scheduler.warmup_steps={schedule.warmup_steps:g} must be less than "
            f"lr_scheduler.total_steps={schedule.total_steps}."
        )


def _check_portions(settings: Settings) -> None:
    trainer, loader = settings.trainer, settings.loader
    devices = trainer.devices * trainer.num_nodes
    together = loader.batch_size * devices * trainer.accumulate_grad_batches
    if together != loader.global_batch_size:
        raise UserError(
            f"loader.global_batch_size={loader.global_batch_size} is not loader.batch_size="
            f"{loader.batch_size} x {devices} device(s) x trainer.accumulate_grad_batches="
            f"{trainer.accumulate_grad_batches} = {together}: choose sizes that fit."
        )
    extra = trainer.model_extra or {}
    for key in extra.keys() & OWN_ARGUMENTS.keys():
        instead = OWN_ARGUMENTS[key]
        advice = f"use {instead} instead" if instead else "leave it out"
        raise UserError(f"trainer.{key} is set by the run itself: {advice}.")
    if extra and trainer.target == "lightning.Trainer":
        _check_lightning_arguments(extra)


def _check_lightning_arguments(extra: dict[str, object]) -> None:
    """Further arguments of Lightning's Trainer, looked up only if there are any."""
    import inspect

    from lightning import Trainer

    for key in extra.keys() - inspect.signature(Trainer.__init__).parameters.keys():
        raise UserError(f"trainer.{key} is no setting, and no argument of Lightning's Trainer.")


def _check_machine(settings: Settings) -> None:
    trainer = settings.trainer
    if trainer.accelerator in CUDA:
        there = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if not there:
            raise UserError(
                f"trainer.accelerator={trainer.accelerator} needs a CUDA GPU, and this machine "
                "shows none: take trainer.accelerator=cpu."
            )
        if trainer.devices > there:
            raise UserError(
                f"trainer.devices={trainer.devices} is more than the {there} GPU(s) of this "
                "machine: lower it."
            )


def _check_replay(settings: Settings) -> None:
    """A replay is of samplers of so many steps."""
    if settings.eval.replay is not None and settings.eval.steps is None:
        raise UserError(
            f"eval.replay={settings.eval.replay} replays samplers of so many steps: give them, "
            "such as eval.steps=[1,2,4], or leave eval.replay out."
        )


def _check_sampling(settings: Settings) -> None:
    model, decode, sampling = settings.model, settings.decode, settings.sampling
    latent = model if isinstance(model, LatentKernelNetwork) else None
    components = 1 if latent is None else latent.num_components
    if settings.process.mode == "sample_eval" and settings.trainer.precision not in (
        *HALF,
        *SINGLE,
    ):
        raise UserError(
            f"trainer.precision={settings.trainer.precision} is for training: mode=sample_eval "
            "takes 32-true, bf16-mixed or 16-mixed."
        )
    if isinstance(decode.component, int) and decode.component >= components:
        raise UserError(
            f"decode.component={decode.component} must be router, random, or a component from 0 "
            f"to {components - 1}."
        )
    if sampling.compile_mode is None:
        return
    single = decode.policy == AUTO and (latent is None or latent.components == 1)
    of_host = settings.method.name != NONE or decode.policy == HOST_SAMPLER or single
    if model.type != LKF or of_host:
        raise UserError(
            f"sampling.compile_mode={sampling.compile_mode} compiles the rollouts of "
            "model=lkf: take decode=commit or another policy of its own, or "
            "sampling.compile_mode=null for MDLM's sampler and the baselines."
        )


def _check_builtin(settings: Settings) -> None:
    trainer, process = settings.trainer, settings.process
    if process.backbone != "dit" or process.subs_masking:
        raise UserError(
            "The built-in host has backbone=dit without subs_masking: take host=mdlm for MDLM's "
            "others."
        )
    if settings.sampling.semi_ar:
        raise UserError("sampling.semi_ar is not in the built-in host: take host=mdlm.")
    if (
        settings.init.from_checkpoint
        and settings.model.type == DDIT
        and (settings.method.name == NONE)
    ):
        raise UserError(
            f"init.from_checkpoint={settings.init.from_checkpoint} is not read by MDLM's own "
            "network: take method=mdlm, or model=lkf to start a mixture from it."
        )
    if trainer.limit_train_batches != 1.0 or isinstance(trainer.limit_train_batches, int):
        raise UserError(
            f"trainer.limit_train_batches={show(trainer.limit_train_batches)} has no meaning on "
            "an endless stream of batches: leave it at 1.0 and limit the run with "
            "trainer.max_steps."
        )
    every = trainer.val_check_interval
    if every != int(every) or every < 1:
        raise UserError(
            f"trainer.val_check_interval={every} must be a whole number of micro-batches "
            "(trainer.limit_val_batches=0 turns validation off)."
        )
    if trainer.check_val_every_n_epoch is not None:
        raise UserError(
            f"trainer.check_val_every_n_epoch={trainer.check_val_every_n_epoch} must be null: an "
            "endless stream of batches has no epochs, trainer.val_check_interval decides."
        )
    if "FSDP" in settings.strategy.target and settings.training.ema > 0:
        raise UserError(
            "strategy=fsdp has no weight average: take strategy=fsdp2, which has, or strategy=ddp, "
            "or set training.ema=0."
        )
    if settings.strategy.target.endswith("ShardedStrategy"):
        _check_sharded(settings)


def _check_sharded(settings: Settings) -> None:
    """What needs whole weights outside a step."""
    if settings.optim.name != "adamw":
        raise UserError(
            f"optim.name={settings.optim.name} needs whole matrices: take optim.name=adamw, or "
            "strategy=ddp."
        )
    if getattr(settings.method, "teacher", None):
        raise UserError("strategy=fsdp2 does not shard a teacher: take strategy=ddp.")


def _check_mdlm(settings: Settings) -> None:
    """What MDLM's code would pass over, or answer with a failed assertion."""
    process, training, model = settings.process, settings.training, settings.model
    if settings.optim.name != "adamw":
        raise UserError(f"optim.name={settings.optim.name} is not in MDLM: take host=builtin.")
    if model.type == LKF and process.backbone != "dit":
        raise UserError(f"model.type=lkf takes the place of backbone=dit, not {process.backbone}.")
    if model.type == DDIT:
        if model.activation_checkpointing:
            raise UserError(
                "model.activation_checkpointing=true is not read by MDLM's own network: take "
                "host=builtin."
            )
        if settings.sampling.prompt is not None:
            raise UserError(
                "sampling.prompt is not in MDLM's sampler: take host=builtin or model=lkf."
            )
        if settings.init.from_checkpoint:
            raise UserError("init.from_checkpoint starts a mixture: take model=lkf.")
    if settings.init.latents is not None:
        raise UserError(
            f"init.latents={settings.init.latents} is not in MDLM's training: take host=builtin, "
            "and go on from its checkpoint."
        )
    kind, T = process.parameterization, process.T
    drawn = training.importance_sampling or training.change_of_variables
    if kind == "sedd" and drawn:
        raise UserError(
            "parameterization=sedd has uniform times in MDLM: set training.importance_sampling="
            "false and training.change_of_variables=false."
        )
    if kind == "d3pm" and T == 0 or kind in ("sedd", "ar") and T > 0:
        wanted = "a number of steps T above 0" if kind == "d3pm" else "continuous time, T=0"
        raise UserError(f"T={T} does not go with parameterization={kind}, which needs {wanted}.")
    if process.subs_masking and kind != "d3pm":
        raise UserError("subs_masking=true is for parameterization=d3pm in MDLM: set it to false.")
    if (kind == "ar") != (process.backbone == "ar"):
        raise UserError(
            f"parameterization={kind} and backbone={process.backbone} do not go together in MDLM: "
            "take ar for both, or for neither."
        )
    if T > 0 and training.sampling_eps * T < 1:
        raise UserError(
            f"T={T} gives NaN in MDLM, whose term at t = 1 / T is 0 / 0: take host=builtin, or "
            f"training.sampling_eps of at least 1 / T = {1 / T:g}, which never draws that time."
        )

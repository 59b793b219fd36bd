"""mode=train on the built-in host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hydra.utils
import lightning as L
from lightning.pytorch.utilities import rank_zero_only
from omegaconf import DictConfig

from lkf_plugin.backbone.warm_start import read_checkpoint
from lkf_plugin.data import PreparedData, prepare
from lkf_plugin.errors import UserError
from lkf_plugin.runs.common import build_module, build_trainer
from lkf_plugin.runs.lock import only_trainer_of
from lkf_plugin.runs.settings import check_resume, run_record, save_settings
from lkf_plugin.train.datamodule import TokenBatches


def train(config: DictConfig) -> dict[str, float]:
    """Trains, or goes on where the run folder's last checkpoint stands.

    Returns:
        The values logged last, by name.
    """
    with only_trainer_of(Path(config.run_dir)):
        prepared = prepare(config)
        resume = _checkpoint_to_resume(config, prepared)
        if resume is not None and _finished(config, resume):
            return {}
        _note_run(config, prepared)
        L.seed_everything(config.seed, verbose=False)
        module = build_module(config, prepared.tokenizer)
        callbacks = [hydra.utils.instantiate(c) for c in (config.callbacks or {}).values()]
        trainer = build_trainer(config, _loggers(config), callbacks)
        trainer.fit(
            module,
            datamodule=TokenBatches(prepared, config),
            ckpt_path=str(resume) if resume else None,
            weights_only=True,
        )
        return {name: float(value) for name, value in trainer.callback_metrics.items()}


def _checkpoint_to_resume(config: DictConfig, prepared: PreparedData) -> Path | None:
    """The checkpoint to go on from, if there is one and it fits."""
    path = config.checkpointing.resume_ckpt_path
    if not config.checkpointing.resume_from_ckpt or not path or not Path(path).is_file():
        return None
    checkpoint = read_checkpoint(path)
    if not {"loops", "optimizer_states", "lr_schedulers"} <= checkpoint.keys():
        raise UserError(
            f"{path} holds weights but no training state: start from it by init.from_checkpoint, "
            "or set checkpointing.resume_from_ckpt=false."
        )
    check_resume(config, prepared.digest, Path(path))
    return Path(path)


def _finished(config: DictConfig, resume: Path) -> bool:
    step = read_checkpoint(resume)["global_step"]
    if step < config.trainer.max_steps:
        print(f"going on from step {step} of {config.trainer.max_steps} ({resume})", flush=True)
        return False
    print(f"this run is complete: {resume} stands at step {step}", flush=True)
    return True


@rank_zero_only
def _note_run(config: DictConfig, prepared: PreparedData) -> None:
    folder = Path(config.run_dir)
    save_settings(config, run_record("builtin", prepared.digest), folder)
    print(f"run folder: {folder}", flush=True)


def _loggers(config: DictConfig) -> list[Any]:
    """The ``logger`` group, and MDLM's ``wandb`` key."""
    try:
        loggers = [hydra.utils.instantiate(entry) for entry in (config.logger or {}).values()]
        if config.wandb is not None:
            from lightning.pytorch.loggers import WandbLogger

            loggers.append(WandbLogger(**config.wandb))
    except Exception as error:
        if isinstance(error.__cause__ or error, ModuleNotFoundError):
            raise UserError(f"This logger needs a package that is missing: {error}") from error
        raise
    return loggers

"""mode=train on the built-in host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hydra.utils
import lightning as L
from lightning.pytorch.utilities import rank_zero_only
from omegaconf import DictConfig

from lkf_plugin.config.limits import check_validation_share
from lkf_plugin.data import PreparedData, prepare
from lkf_plugin.errors import UserError
from lkf_plugin.modes.public_start import with_local_start
from lkf_plugin.runs.common import build_module, build_trainer, choose_device
from lkf_plugin.runs.lock import only_trainer_of
from lkf_plugin.runs.preflight import check_disk, judge_of_training
from lkf_plugin.runs.resume import Resume, find_resume
from lkf_plugin.runs.settings import run_record, save_settings
from lkf_plugin.runs.stamp import StampCard
from lkf_plugin.runs.start import card_of, check_run, check_start
from lkf_plugin.runs.tokenizer import FOLDER, keep_tokenizer
from lkf_plugin.train import read_once
from lkf_plugin.train.checkpoint import lacks_validation
from lkf_plugin.train.datamodule import TokenBatches
from lkf_plugin.train.em_start import warm_up_of


def train(config: DictConfig) -> dict[str, float]:
    """Trains, or goes on where the run folder's last checkpoint stands.

    Returns:
        The values logged last, by name.
    """
    with only_trainer_of(Path(config.run_dir)):
        judge = judge_of_training(config, choose_device(config))
        resume = find_resume(config)
        prepared = prepare(config)
        check_validation_share(config, len(prepared.valid or ()))
        started = with_local_start(config, prepared, fresh=resume is None)
        if resume is None:
            check_start(started, prepared)
        else:
            check_run(config, prepared, resume)
            if _finished(config, resume):
                return {}
            read_once.keep(resume.path, resume.checkpoint)
        card = card_of(config, prepared)
        L.seed_everything(config.seed, verbose=False)
        module = build_module(started, prepared.tokenizer)
        module.take_judge(judge)
        if config.init.latents is not None:
            lkf: Any = module  # rules see to that
            lkf.warm_up = warm_up_of(config, module, prepared)
        callbacks = [hydra.utils.instantiate(c) for c in (config.callbacks or {}).values()]
        callbacks.append(StampCard(card))
        loggers = _loggers(config)
        check_disk(config, module)
        _note_run(config, prepared)
        trainer = build_trainer(config, loggers, callbacks)
        trainer.fit(
            module,
            datamodule=TokenBatches(prepared, config),
            ckpt_path=str(resume.path) if resume else None,
            weights_only=True,
        )
        return {name: float(value) for name, value in trainer.callback_metrics.items()}


def _finished(config: DictConfig, resume: Resume) -> bool:
    trainer = config.trainer
    unseen = trainer.limit_val_batches != 0 and lacks_validation(
        resume.checkpoint, trainer.val_check_interval, trainer.accumulate_grad_batches
    )
    if resume.step < trainer.max_steps or unseen:
        whole = trainer.max_steps
        print(f"going on from step {resume.step} of {whole} ({resume.path})", flush=True)
        return False
    print(f"this run is complete: {resume.path} stands at step {resume.step}", flush=True)
    return True


@rank_zero_only
def _note_run(config: DictConfig, prepared: PreparedData) -> None:
    folder = Path(config.run_dir)
    save_settings(config, run_record("builtin", prepared.digest), folder)
    keep_tokenizer(prepared.tokenizer, folder / FOLDER)
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

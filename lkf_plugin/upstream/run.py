"""host=mdlm: run inside an unmodified MDLM checkout.

MDLM's own `main` trains and evaluates; this file hands it a configuration it understands, data that
is already prepared, and the rebound names of `mdlm_module.plugged_in`.

* metrics: where the `logger` group puts them, for `logger=csv` in `run_dir/metrics.csv`
* files of MDLM's own: `config_tree.txt` in the run folder
* resuming: MDLM's semantics. `last.ckpt` restores weights, optimizer, average and counters; on one
  device the order of the data starts again from the seed. host=builtin resumes exactly
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning
from omegaconf import DictConfig, OmegaConf

from lkf_plugin.config.limits import check_validation_share
from lkf_plugin.data import PreparedData, prepare
from lkf_plugin.decode.sample import BLOCK
from lkf_plugin.errors import UserError
from lkf_plugin.evaluate.validation import write_likelihood
from lkf_plugin.ranks import is_first
from lkf_plugin.runs import stamp
from lkf_plugin.runs.common import use_cpus
from lkf_plugin.runs.evaluated import (
    open_checkpoint,
    prepare_in_its_tokenizer,
    say_loaded,
)
from lkf_plugin.runs.load import LoadedRun
from lkf_plugin.runs.lock import only_trainer_of
from lkf_plugin.runs.preflight import judge_of_training
from lkf_plugin.runs.resume import find_resume
from lkf_plugin.runs.settings import run_record, save_settings
from lkf_plugin.runs.start import card_of, check_run, check_start
from lkf_plugin.runs.tokenizer import FOLDER, keep_tokenizer
from lkf_plugin.train import read_once
from lkf_plugin.train.sequence_errors import SequenceErrors
from lkf_plugin.upstream import shims as mdlm_shims
from lkf_plugin.upstream import trainer as mdlm_trainer
from lkf_plugin.upstream.checkout import (
    Upstream,
    load_upstream,
    require_checkout,
    warn_unless_pinned,
)
from lkf_plugin.upstream.module import plugged_in, refuse_unsupported

log = logging.getLogger(__name__)


def run(config: DictConfig) -> dict[str, Any]:
    """Train (`mode=train`) or evaluate the likelihood (`mode=ppl_eval`) by MDLM's own code.

    Args:
        config: the composed configuration with absolute paths; it is left as it is.

    Returns:
        As on the built-in host: the values logged last, or the contents of `ppl_eval.json`.

    Raises:
        UserError: there is no checkout, or MDLM cannot do on this machine what the configuration
            asks for.
    """
    if config.mode == "ppl_eval":
        return _ppl_eval(config)
    assert config.mode == "train", config.mode
    folder = Path(config.run_dir)
    with only_trainer_of(folder):
        judge_of_training(config)  # MDLM loads its own at the first validation
        resume = find_resume(config)
        upstream, hosted, prepared = _set_up(config)
        hosted.checkpointing.resume_from_ckpt = resume is not None
        if resume is None:
            check_start(config, prepared)
        else:
            check_run(config, prepared, resume)
            hosted.checkpointing.resume_ckpt_path = str(resume.path)
            read_once.keep(resume.path, resume.checkpoint)
        card = card_of(config, prepared)
        hosted.callbacks.stamp_card = {"_target_": stamp.TARGET, "card": card}
        if is_first():
            save_settings(config, run_record("mdlm", prepared.digest), folder)
            keep_tokenizer(prepared.tokenizer, folder / FOLDER)
        return _metrics(_run_main(upstream, hosted, prepared))


def load_model(config: DictConfig, prepared: PreparedData) -> lightning.LightningModule:
    """Load `eval.checkpoint_path` into MDLM's module, on the CPU, ready to sample.

    Args:
        config: the composed configuration.
        prepared: data in the checkpoint's own tokenizer.

    Raises:
        UserError: no checkout, no such checkpoint, or one that holds pickled objects.
    """
    upstream, hosted = _start(config)
    _adapt(hosted, prepared)
    if not hosted.sampling.semi_ar:
        hosted.loader.eval_batch_size = BLOCK  # what MDLM's sampler draws at once
    tokenizer = upstream.dataloader.get_tokenizer(hosted)
    with plugged_in(upstream, hosted, prepared.mask_index) as chosen, _plain_errors():
        model: Any = chosen.load_from_checkpoint(
            hosted.eval.checkpoint_path, map_location="cpu", tokenizer=tokenizer, config=hosted
        )
    if hosted.eval.disable_ema:
        model.ema = None
    return model


def _ppl_eval(config: DictConfig) -> dict[str, Any]:
    """Validate a checkpoint; write `ppl_eval.json` and its record into the run folder."""
    opened = open_checkpoint(config)
    upstream, hosted = _start(config)
    prepared = prepare_in_its_tokenizer(config, opened)
    check_validation_share(config, len(prepared.valid or ()))
    _adapt(hosted, prepared)
    hosted.eval.checkpoint_path = str(opened.path)
    target = f"{SequenceErrors.__module__}.{SequenceErrors.__qualname__}"
    hosted.callbacks.sequence_errors = {"_target_": target}
    trainer = _run_main(upstream, hosted, prepared)
    module = trainer.lightning_module
    say_loaded(opened, module, config)
    run = LoadedRun(config, module, prepared, opened.path, opened.step)
    return write_likelihood(run, trainer)


def _metrics(trainer: lightning.Trainer) -> dict[str, float]:
    """The values logged last, by MDLM's names (`val/nll` in nats per token)."""
    return {name: float(value) for name, value in trainer.callback_metrics.items()}


def _set_up(config: DictConfig) -> tuple[Upstream, DictConfig, PreparedData]:
    """Load MDLM, and prepare the data and the configuration that training is given."""
    upstream, hosted = _start(config)
    prepared = prepare(config)
    check_validation_share(config, len(prepared.valid or ()))
    _adapt(hosted, prepared)
    return upstream, hosted, prepared


def _start(config: DictConfig) -> tuple[Upstream, DictConfig]:
    """Load MDLM, and prepare the configuration that it is given."""
    home = require_checkout()
    hosted = _without_interpolations(config)
    refuse_unsupported(hosted)
    warn_unless_pinned(home)
    use_cpus(config)
    mdlm_shims.install(on_gpu=hosted.trainer.accelerator in ("gpu", "cuda"))
    return load_upstream(home), hosted


def _without_interpolations(config: DictConfig) -> DictConfig:
    """A copy with all values worked out: MDLM runs in another working directory."""
    hosted = copy.deepcopy(config)
    OmegaConf.resolve(hosted)
    OmegaConf.set_struct(hosted, False)
    return hosted


def _adapt(hosted: DictConfig, prepared: PreparedData) -> None:
    """Point MDLM's keys at the prepared data and at this plugin's loggers."""
    hosted.data.cache_dir = str(prepared.folder)
    hosted.data.tokenizer_name_or_path = prepared.tokenizer_path
    log.info("MDLM loads the prepared arrays in %s", prepared.folder)
    if hosted.loader.num_workers < 1:
        log.info("loader.num_workers is raised to 1: MDLM's loaders need a worker process")
        hosted.loader.num_workers = 1
    if hosted.trainer.accelerator == "cpu":
        hosted.loader.pin_memory = False
    if hosted.get("callbacks") is None:
        hosted.callbacks = {}
    hosted.trainer._target_ = mdlm_trainer.TARGET
    # An evaluation logs to no file: it would start the training's metrics.csv anew.
    hosted.trainer.lkf_loggers = hosted.get("logger") if hosted.mode == "train" else None


def _run_main(upstream: Upstream, hosted: DictConfig, prepared: PreparedData) -> lightning.Trainer:
    """Call MDLM's `main` in the run folder; return the trainer it built."""
    Path(hosted.run_dir).mkdir(parents=True, exist_ok=True)
    with (
        plugged_in(upstream, hosted, prepared.mask_index),
        _working_directory(hosted.run_dir),
        _plain_errors(),
        _no_autocast_warnings(),
    ):
        # Hydra wrapped that function; the one inside takes a composed configuration.
        upstream.main.main.__wrapped__(hosted)
    return mdlm_trainer.take_trainer()


@contextlib.contextmanager
def _working_directory(folder: str) -> Iterator[None]:
    """Run in `folder`: MDLM takes the working directory for the run folder."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextlib.contextmanager
def _plain_errors() -> Iterator[None]:
    """Turn the refusal to unpickle a checkpoint's objects into a sentence that helps."""
    try:
        yield
    except pickle.UnpicklingError as error:
        raise UserError(
            "this checkpoint holds pickled objects, as MDLM's own do: convert it first with "
            "scripts/import_checkpoint.py"
        ) from error


@contextlib.contextmanager
def _no_autocast_warnings() -> Iterator[None]:
    """Silence the two warnings that MDLM's old autocast calls give at every run."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`torch\.cuda\.amp\.autocast", FutureWarning)
        warnings.filterwarnings("ignore", "CUDA is not available or torch_xla", UserWarning)
        yield

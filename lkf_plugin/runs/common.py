"""What every mode on the built-in host needs: module, weights, trainer."""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from pathlib import Path
from typing import Any

import hydra.utils
import lightning as L
import torch
from omegaconf import DictConfig

from lkf_plugin.backbone.warm_start import read_checkpoint
from lkf_plugin.config import cpu_count
from lkf_plugin.errors import UserError
from lkf_plugin.host.builtin import Diffusion
from lkf_plugin.methods.settings import NONE, baseline_name
from lkf_plugin.train.checkpoint import BEST, LAST


def build_module(config: DictConfig, tokenizer: Any) -> Diffusion:
    """The module of a config: a baseline, or MDLM's twin with the latent-kernel mixin for lkf."""
    if baseline_name(config) != NONE:
        from lkf_plugin.methods.build import build_baseline

        return build_baseline(config, tokenizer)
    if config.model.type != "lkf":
        return Diffusion(config, tokenizer)
    from lkf_plugin.methods.lkf import bind

    return bind(Diffusion)(config, tokenizer)


def find_checkpoint(config: DictConfig) -> Path:
    """The checkpoint to evaluate: ``eval.checkpoint_path``, else the run's best, else its last.

    Raises:
        UserError: it is not there.
    """
    given = config.eval.checkpoint_path
    if given:
        if not Path(given).is_file():
            raise UserError(f"There is no checkpoint at eval.checkpoint_path={given}.")
        return Path(given)
    folder = Path(config.checkpointing.save_dir) / "checkpoints"
    for name in (BEST, LAST):
        if (folder / name).is_file():
            return folder / name
    raise UserError(f"There is no checkpoint in {folder}: train first or set eval.checkpoint_path.")


def load_weights(module: Diffusion, path: Path) -> dict[str, Any]:
    """Puts a checkpoint's weights and averages into a module; returns ``{"step": ...}``.

    Raises:
        UserError: the file is no checkpoint, or one of another network.
    """
    checkpoint = read_checkpoint(path)
    try:
        module.load_state_dict(checkpoint["state_dict"])
    except RuntimeError as error:
        raise UserError(
            f"{path} holds another network than the model settings describe: give the data and "
            "model settings of its run."
        ) from error
    module.on_load_checkpoint(checkpoint)
    return {"step": checkpoint.get("global_step")}


def build_trainer(config: DictConfig, logger: Any, callbacks: list[Any]) -> L.Trainer:
    """``config.trainer`` with our data sharing, strategy and progress bar."""
    from lkf_plugin.train.bar import RunProgressBar

    use_cpus(config)
    _hush()
    return hydra.utils.instantiate(
        config.trainer,
        default_root_dir=config.run_dir,
        strategy=hydra.utils.instantiate(config.strategy),
        callbacks=[*callbacks, RunProgressBar(refresh_rate=10)],
        logger=logger,
        use_distributed_sampler=False,
        enable_model_summary=False,
    )


def _hush() -> None:
    """Drops Lightning's small talk and two warnings that do not apply to our loaders."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", ".*isinstance.treespec, LeafSpec.*")
    warnings.filterwarnings("ignore", ".*Your `IterableDataset` has `__len__` defined.*")
    warnings.filterwarnings("ignore", ".*does not have many workers.*")


def use_cpus(config: DictConfig) -> None:
    """On a CPU, shares its cores among the processes, unless OMP_NUM_THREADS says otherwise."""
    if config.trainer.accelerator == "cpu" and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(cpu_count() // config.trainer.devices, 1))


def choose_device(config: DictConfig) -> torch.device:
    """The first device of ``trainer.accelerator``."""
    on_gpu = config.trainer.accelerator in ("cuda", "gpu") or (
        config.trainer.accelerator == "auto" and torch.cuda.is_available()
    )
    return torch.device("cuda" if on_gpu else "cpu")


def autocast(config: DictConfig, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """``trainer.precision`` outside a trainer."""
    half = {"bf16-mixed": torch.bfloat16, "bf16": torch.bfloat16, "16-mixed": torch.float16}
    dtype = half.get(str(config.trainer.precision))
    if dtype is None:
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=dtype)

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
from lightning.pytorch.plugins.environments import SLURMEnvironment
from lightning.pytorch.strategies import DDPStrategy
from omegaconf import DictConfig

from lkf_plugin.checkpoint_file import read_checkpoint
from lkf_plugin.config import cpu_count
from lkf_plugin.errors import UserError
from lkf_plugin.host.builtin import Diffusion
from lkf_plugin.methods.method import method_of
from lkf_plugin.ranks import by_srun


def build_module(config: DictConfig, tokenizer: Any) -> Diffusion:
    """The module of a configuration's method, on the built-in host."""
    module: Diffusion = method_of(config).build(config, tokenizer)
    return module


def load_weights(
    module: Diffusion, path: Path, checkpoint: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Puts a checkpoint's weights and averages into a module; returns ``{"step": ...}``.

    Args:
        module: as its settings describe it.
        path: of the checkpoint.
        checkpoint: its contents, if they were read already.

    Raises:
        UserError: the file is no checkpoint, or one of another network.
    """
    checkpoint = read_checkpoint(path) if checkpoint is None else checkpoint
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
        strategy=_strategy(config),
        plugins=_without_requeue(),
        callbacks=[*callbacks, RunProgressBar(refresh_rate=10)],
        logger=logger,
        use_distributed_sampler=False,
        enable_model_summary=False,
    )


def _without_requeue() -> list[Any] | None:
    """Under SLURM, Lightning's environment without its own checkpoints and requeueing: ours are."""
    return [SLURMEnvironment(auto_requeue=False)] if by_srun() else None


def _strategy(config: DictConfig) -> Any:
    """The strategy; ``auto`` over several devices is DDP.

    Our buffers are constants. If DDP sent them along with each batch of a validation, processes
    with a batch more than others would wait for ever.
    """
    strategy = hydra.utils.instantiate(config.strategy)
    if strategy == "auto" and config.trainer.devices * config.trainer.num_nodes > 1:
        return DDPStrategy(broadcast_buffers=False)
    return strategy


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
    half["16"] = half["16-mixed"]
    dtype = half.get(str(config.trainer.precision))
    if dtype is None:
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=dtype)

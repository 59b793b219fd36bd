"""Pure functions that the YAML files may call as ``${name:...}``. None of them evaluates code."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from lkf_plugin.config.memory import fitting_batch
from lkf_plugin.config.start_sizes import start_size
from lkf_plugin.ranks import by_srun


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
    """Processes that torchrun starts on a node; else GPUs, or one CPU."""
    if _by_torchrun():
        return int(os.environ["LOCAL_WORLD_SIZE"])
    return max(torch.cuda.device_count(), 1)


def node_count() -> int:
    """Nodes that torchrun or SLURM's srun has started this on, else one."""
    if _by_torchrun():
        return int(os.environ["GROUP_WORLD_SIZE"])
    if by_srun():
        return int(os.environ.get("SLURM_STEP_NUM_NODES", os.environ.get("SLURM_NNODES", "1")))
    return 1


def _by_torchrun() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


def default_accelerator() -> str:
    """``cuda`` where there is one, else ``cpu``."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def default_precision() -> str:
    """``bf16-mixed`` on a GPU, ``32-true`` on a CPU."""
    return "bf16-mixed" if torch.cuda.is_available() else "32-true"


def file_stem(path: str) -> str:
    """Name of a file or folder without its endings, fit to be part of a folder's name."""
    name = Path(str(path)).name.removesuffix(".gz")
    stem = name.rpartition(".")[0] or name
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in stem) or "text"


RESOLVERS: dict[str, Callable[..., Any]] = {
    "mul": multiply,
    "div_up": divide_up,
    "cpu_count": cpu_count,
    "device_count": device_count,
    "node_count": node_count,
    "accelerator": default_accelerator,
    "precision": default_precision,
    "fitting_batch": fitting_batch,
    "cwd": os.getcwd,
    "file_stem": file_stem,
    "start_size": start_size,
}


def register_resolvers() -> None:
    """Makes the functions above available as ``${name:...}``."""
    for name, function in RESOLVERS.items():
        OmegaConf.register_new_resolver(name, function, replace=True)

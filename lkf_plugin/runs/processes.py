"""Several processes that share an evaluation, as ``torchrun`` or ``srun`` starts them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from lightning.fabric.plugins.environments import SLURMEnvironment

from lkf_plugin.decode.policy import Decoded
from lkf_plugin.decode.sample import joined
from lkf_plugin.ranks import by_srun

T = TypeVar("T")


@dataclass(frozen=True)
class Processes:
    """This process among all.

    Attributes:
        rank: its number.
        count: how many there are.
    """

    rank: int = 0
    count: int = 1

    @staticmethod
    @contextlib.contextmanager
    def join() -> Iterator[Processes]:
        """All processes that WORLD_SIZE, or SLURM's srun, speaks of; one alone where none does."""
        _name_those_of_srun()
        count = int(os.environ.get("WORLD_SIZE", "1"))
        if count == 1 or dist.is_initialized():
            known = dist.is_initialized()
            yield Processes(dist.get_rank(), dist.get_world_size()) if known else Processes()
            return
        dist.init_process_group("gloo")
        try:
            yield Processes(dist.get_rank(), dist.get_world_size())
        finally:
            dist.destroy_process_group()

    def device(self, device: torch.device) -> torch.device:
        """The accelerator of this process, where there are several."""
        if device.type != "cuda" or self.count == 1:
            return device
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))

    def joined(self, decoded: Decoded | None) -> Decoded:
        """The samples of all processes in the order of their numbers.

        Args:
            decoded: this process's; None where it has none.
        """
        return joined([part for part in self.gathered(decoded) if part is not None])

    def gathered(self, own: T) -> list[T]:
        """What each process has, in the order of their ranks, on every process."""
        if self.count == 1:
            return [own]
        parts: list[Any] = [None] * self.count
        dist.all_gather_object(parts, own)
        return parts


def _name_those_of_srun() -> None:
    """torchrun's variables for processes that srun has started."""
    if "WORLD_SIZE" in os.environ or not by_srun():
        return
    slurm = SLURMEnvironment(auto_requeue=False)
    os.environ |= {  # address and port it notes itself
        "MASTER_ADDR": slurm.main_address,
        "MASTER_PORT": str(slurm.main_port),
        "WORLD_SIZE": str(slurm.world_size()),
        "RANK": str(slurm.global_rank()),
        "LOCAL_RANK": str(slurm.local_rank()),
    }

"""``strategy=fsdp2``: weights, gradients, moments and the average in shards, one a process.

PyTorch's ``fully_shard`` on the whole module: its weights are gathered when a training or
validation step begins, and each process keeps its shard of everything else. Checkpoints are whole,
and those of any other strategy.

Source: lightning.pytorch.strategies.ModelParallelStrategy, torch.distributed.fsdp.fully_shard.
"""

from __future__ import annotations

from typing import Any

from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor

# What asks the network: it is whole while one of these runs.
STEPS = ("training_step", "validation_step", "_after_validation")


class ShardedStrategy(ModelParallelStrategy):
    """Data parallel over all processes, a checkpoint in one file."""

    def __init__(self) -> None:
        super().__init__(
            data_parallel_size="auto", tensor_parallel_size=1, save_distributed_checkpoint=False
        )

    def setup_environment(self) -> None:
        """All processes of all nodes are one data-parallel group."""
        self._data_parallel_size = self.num_nodes * self.num_processes
        super().setup_environment()


def shard(module: Any, mesh: Any) -> None:
    """Shards a module's weights, in place, once."""
    if isinstance(module, FSDPModule):
        return
    fully_shard(module, mesh=mesh, reshard_after_forward=False)
    for name in STEPS:
        register_fsdp_forward_method(module, name)


def in_shards(module: Any) -> None:
    """Lets go of gathered weights: what is read and written then are the shards."""
    if isinstance(module, FSDPModule):
        module.reshard()


def whole(tensor: Tensor) -> Tensor:
    """A sharded tensor's values on every process (a collective call); others as they are."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def like(tensor: Tensor, wanted: Tensor) -> Tensor:
    """A whole tensor placed as another one is (a collective call where that is sharded)."""
    own = tensor.detach().clone().to(wanted.device, wanted.dtype)
    if isinstance(wanted, DTensor):
        return distribute_tensor(own, wanted.device_mesh, wanted.placements)
    return own


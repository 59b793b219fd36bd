"""Two-phase training in two processes: gradients are those of one process with the whole batch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from lkf_plugin.objective.components import HeadSettings
from lkf_plugin.objective.two_phase import BackwardPlan, two_phase_objective
from tests.tiny import tiny_backbone

MASK, M, BATCH = 2, 4, 6


class Step(nn.Module):
    """What DDP wraps: the loss, as Lightning's training step is."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = tiny_backbone(num_components=M, n_blocks=3, latent_blocks=2).train()

    def forward(self, xt, x0, sigma, weight):
        _, objective = two_phase_objective(
            self.backbone, xt, x0, xt == MASK, sigma, weight, HeadSettings(), BackwardPlan()
        )
        return objective.total


def problem():
    torch.manual_seed(1)
    x0 = torch.randint(3, 7, (BATCH, 8))
    xt = torch.where(torch.rand(BATCH, 8) < 0.6, MASK, x0)
    return xt, x0, torch.rand(BATCH).double() + 0.1, torch.rand(BATCH).double() + 0.5


def gradient(step):
    named = step.named_parameters()
    return {n: p.grad for n, p in named if p.grad is not None}


def work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=2)
    step = Step()
    wrapped = DistributedDataParallel(step)
    parts = [x[rank::2] for x in problem()]
    with wrapped.no_sync():  # the first of two micro-batches
        wrapped(*(x[:1] for x in parts)).backward()
    wrapped(*(x[1:] for x in parts)).backward()
    if rank == 0:
        torch.save(gradient(step), Path(folder) / "gradient.pt")
    dist.destroy_process_group()


@pytest.mark.slow
def test_two_processes_and_two_micro_batches_are_one_batch(tmp_path):
    mp.spawn(work, (str(tmp_path),), nprocs=2)
    step = Step()
    step(*problem()).backward()
    expected = gradient(step)
    found = torch.load(tmp_path / "gradient.pt")
    assert found.keys() == expected.keys() == dict(step.named_parameters()).keys()
    for name, value in expected.items():
        # DDP averages over processes
        torch.testing.assert_close(2 * found[name], value, rtol=1e-9, atol=1e-11)

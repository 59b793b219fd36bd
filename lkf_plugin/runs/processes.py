"""Joins the processes that ``torchrun`` or ``srun`` has started for one evaluation."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator
from datetime import timedelta

import torch.distributed as dist
from lightning.fabric.plugins.environments import SLURMEnvironment
from torch.distributed.rendezvous import rendezvous

from lkf_plugin.errors import UserError
from lkf_plugin.failures import foreseen
from lkf_plugin.processes import ALONE, PeerGone, Processes
from lkf_plugin.ranks import by_srun

# How long one waits for another's part. That of a dead process is not waited for.
PATIENCE = timedelta(hours=12)
FAILED = "lkf/failed"  # counter in the store: how many processes have failed


@contextlib.contextmanager
def join() -> Iterator[Processes]:
    """All processes that WORLD_SIZE, or SLURM's srun, speaks of; one alone where none does.

    Of several, the first that fails says why, in a sentence (a bug: with its traceback), and all
    leave with a status.

    Raises:
        SystemExit: after a failure of one of several processes.
        UserError: they do not find each other.
    """
    if dist.is_initialized():
        yield Processes(dist.get_rank(), dist.get_world_size())
        return
    _name_those_of_srun()
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield ALONE
        return
    store = _meet()
    try:
        yield Processes(dist.get_rank(), dist.get_world_size())
    except Exception as error:
        sys.exit(_told(error, store))
    finally:
        dist.destroy_process_group()


def _meet() -> dist.Store:
    """The store of the new group of processes."""
    try:
        store, rank, count = next(rendezvous("env://"))
        dist.init_process_group("gloo", store=store, rank=rank, world_size=count, timeout=PATIENCE)
    except (RuntimeError, ValueError) as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise UserError(
            f"WORLD_SIZE={os.environ['WORLD_SIZE']} processes were to meet, and did not ({first}): "
            "start them by torchrun or srun, or unset WORLD_SIZE."
        ) from error
    return store


def _told(error: Exception, store: dist.Store) -> int:
    """Says what went wrong, unless another process has done so already.

    Returns:
        the exit status.
    """
    try:
        speaks = store.add(FAILED, 1) == 1
    except RuntimeError:  # it went with the process that held it
        speaks = not isinstance(error, PeerGone)
    words = foreseen(error)
    if speaks and (words is None or os.environ.get("LKF_TRACEBACK") == "1"):
        traceback.print_exception(error)
    elif speaks and words is not None:
        print(f"error: {words[0]}", file=sys.stderr, flush=True)
    return 1 if words is None or isinstance(error, PeerGone) else words[1]


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

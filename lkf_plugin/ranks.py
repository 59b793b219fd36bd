"""Which of several processes this is, before any of them has joined a group.

torchrun says it in RANK, SLURM's srun in SLURM_PROCID, Lightning's own launcher in LOCAL_RANK and
NODE_RANK.
"""

from __future__ import annotations

import os


def by_srun() -> bool:
    """Whether SLURM's srun started this process; an interactive shell of SLURM does not count."""
    shell = os.environ.get("SLURM_JOB_NAME") in ("bash", "interactive")
    return "SLURM_NTASKS" in os.environ and "SLURM_PROCID" in os.environ and not shell


def is_first() -> bool:
    """Whether this is the one that speaks, locks and writes."""
    if "RANK" in os.environ:
        return int(os.environ["RANK"]) == 0
    if by_srun():
        return int(os.environ["SLURM_PROCID"]) == 0
    return all(int(os.environ.get(name, "0")) == 0 for name in ("LOCAL_RANK", "NODE_RANK"))

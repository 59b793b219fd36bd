"""Several processes that share one piece of work, and end together (``runs.processes`` joins them).

What is shared is dealt in the portions in which one process would do it, and put together in its
order, so that no figure depends on how many there are.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from lkf_plugin.errors import UserError
from lkf_plugin.progress import bar

T = TypeVar("T")
Job = TypeVar("Job")


class PeerGone(UserError):
    """Another process ended without its part of the work."""


@dataclass(frozen=True)
class Processes:
    """This process among all. Every process must ask for the same things in the same order.

    Attributes:
        rank: its number.
        count: how many there are.
    """

    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the one that writes and speaks."""
        return self.rank == 0

    def device(self, device: torch.device) -> torch.device:
        """The accelerator of this process, where there are several."""
        if device.type != "cuda" or self.count == 1:
            return device
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))

    def gathered(self, own: T) -> list[T]:
        """What each process has, in the order of their ranks, on every process.

        Raises:
            PeerGone: one of them has ended.
        """
        if self.count == 1:
            return [own]
        parts: list[Any] = [None] * self.count
        with self._together():
            dist.all_gather_object(parts, own)
        return parts

    def dealt(
        self,
        jobs: Sequence[Job],
        work: Callable[[Job], T],
        title: str | None = None,
        unit: str = "batch",
    ) -> list[T]:
        """The results of all jobs in their order, on every process; each does every n-th.

        Args:
            jobs: the same ones on every process.
            work: what is done with one; its result travels by pickle.
            title: of a bar; None shows none.
            unit: of the bar.

        Raises:
            PeerGone: a process has ended.
        """
        mine = jobs[self.rank :: self.count]
        own = [work(job) for job in bar(mine, title, unit, shown=title is not None)]
        parts = self.gathered(own)
        return [parts[i % self.count][i // self.count] for i in range(len(jobs))]

    def by_first(self, work: Callable[[], T]) -> T:
        """What the first process finds, on every process; the others wait.

        Raises:
            PeerGone: a process has ended.
        """
        if self.count == 1:
            return work()
        box: list[Any] = [work() if self.first else None]
        with self._together():
            dist.broadcast_object_list(box, src=0)
        return box[0]

    @contextlib.contextmanager
    def _together(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:  # how gloo says that a connection is closed
            raise PeerGone(
                f"One of the {self.count} processes has ended before its part was done (killed, or "
                "out of memory?): run the same command again, finished records are kept."
            ) from error


ALONE = Processes()

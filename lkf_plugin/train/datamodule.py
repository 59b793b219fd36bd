"""Data loaders that know where the run stands."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import lightning as L
from torch import Tensor
from torch.utils.data import DataLoader

from lkf_plugin.data import PreparedData, train_loader, valid_loader
from lkf_plugin.train.stopping import SIGNALS

Batch = dict[str, Tensor]


class ContinuingBatches:
    """Training batches from the run's current micro-batch on.

    Lightning iterates over it after it has restored its counters; the loader, and its worker
    processes, are made only then.
    """

    def __init__(self, module: TokenBatches) -> None:
        self._module = module

    def __iter__(self) -> Iterator[Batch]:
        trainer = self._module.trainer
        assert trainer is not None
        return iter(self._module.loader_from(trainer.fit_loop.total_batch_idx + 1))


class TokenBatches(L.LightningDataModule):
    """Loaders over prepared data, each process with its share.

    Args:
        prepared: from ``lkf_plugin.data.prepare``.
        config: the composed config (``loader`` and ``seed``).
    """

    def __init__(self, prepared: PreparedData, config: Any) -> None:
        super().__init__()
        self.prepared = prepared
        self.config = config

    def _share(self) -> dict[str, int | bool]:
        assert self.trainer is not None
        return {
            "rank": self.trainer.global_rank,
            "world_size": self.trainer.world_size,
            "num_workers": self.config.loader.num_workers,
            "pin_memory": self.config.loader.pin_memory,
        }

    def loader_from(self, start_batch: int) -> DataLoader[Batch]:
        """Endless loader whose first batch is number ``start_batch`` of the run."""
        loader = train_loader(
            self.prepared,
            batch_size=self.config.loader.batch_size,
            seed=self.config.seed,
            start_batch=start_batch,
            **self._share(),  # type: ignore[arg-type]
        )
        return _outliving_signals(loader)

    def train_dataloader(self) -> ContinuingBatches:
        """Endless training batches."""
        return ContinuingBatches(self)

    def val_dataloader(self) -> DataLoader[Batch]:
        """One pass over the held-out sequences in fixed order."""
        loader = valid_loader(
            self.prepared,
            batch_size=self.config.loader.eval_batch_size,
            **self._share(),  # type: ignore[arg-type]
        )
        return _outliving_signals(loader)


def _outliving_signals(loader: DataLoader[Batch]) -> DataLoader[Batch]:
    """Lets workers outlive a signal to the whole process group: the step in progress needs them.

    They end with their parent.
    """
    loader.worker_init_fn = _ignore_signals
    return loader


def _ignore_signals(worker: int) -> None:
    for one in SIGNALS:
        signal.signal(one, signal.SIG_IGN)

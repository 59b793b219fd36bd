"""A progress bar over the whole run."""

from __future__ import annotations

from typing import Any

import lightning as L
from lightning.pytorch.callbacks import TQDMProgressBar


class RunProgressBar(TQDMProgressBar):
    """Counts micro-batches of the run up to ``trainer.max_steps``, wherever it was resumed."""

    @property
    def total_train_batches(self) -> int | float:
        """Micro-batches of the whole run."""
        if self.trainer.max_steps < 0:
            return float("inf")
        return self.trainer.max_steps * self.trainer.accumulate_grad_batches

    def on_train_start(self, trainer: L.Trainer, *args: Any) -> None:
        """Starts where the run stands."""
        super().on_train_start(trainer, *args)
        bar = self.train_progress_bar
        bar.total = self.total_train_batches
        bar.initial = bar.n = trainer.global_step * trainer.accumulate_grad_batches
        bar.set_description("training")

    def on_train_epoch_start(self, trainer: L.Trainer, *args: Any) -> None:
        """Nothing to reset: there is one endless epoch."""

    def get_metrics(self, trainer: L.Trainer, model: L.LightningModule) -> dict[str, Any]:
        """Logged values, without a version number."""
        items = super().get_metrics(trainer, model)
        items.pop("v_num", None)
        return items

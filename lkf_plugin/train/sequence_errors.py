"""The standard error of a validation's nats per token, on either host."""

from __future__ import annotations

from typing import Any

import lightning as L
import torch

from lkf_plugin.train.spread import Spread


class SequenceErrors(L.Callback):
    """Listens to ``_loss`` of a host's module while it validates; sequences are the unit.

    Attributes:
        se: nats per token, over all processes; None before a validation or below two sequences.
        sequences: how many were evaluated, over all processes.
    """

    def __init__(self) -> None:
        self.se: float | None = None
        self.sequences = 0
        self._spread = Spread()

    def on_validation_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        """Puts itself between the module and its loss."""
        self._spread.reset()
        self.se, self.sequences = None, 0
        loss = pl_module._loss

        def heard(x0: torch.Tensor, attention_mask: torch.Tensor) -> Any:
            losses = loss(x0, attention_mask)
            tokens_BL = losses.token_mask.double()
            nats_BL = losses.nlls.detach().double() * tokens_BL
            self._spread.add(nats_BL.sum(-1), tokens_BL.sum(-1))
            self.sequences += len(x0)
            return losses

        pl_module._loss = heard

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        """Adds up over the processes."""
        self.se = self._spread.standard_error()
        count = torch.tensor(self.sequences, device=pl_module.device)
        self.sequences = int(trainer.strategy.reduce(count, reduce_op="sum"))

    def on_validation_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        """Leaves the module as it was."""
        del pl_module._loss

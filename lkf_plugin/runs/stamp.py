"""The callback that writes a run's card into each of its checkpoints, on either host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lightning as L
from omegaconf import DictConfig, OmegaConf

from lkf_plugin.runs.identity import CARD

TARGET = f"{__name__}.StampCard"


class StampCard(L.Callback):
    """Puts ``card`` into every checkpoint.

    Args:
        card: see ``runs.identity``; MDLM's trainer hands it over as a configuration.
    """

    def __init__(self, card: Mapping[str, Any]) -> None:
        plain = OmegaConf.to_container(card) if isinstance(card, DictConfig) else dict(card)
        self.card = plain

    def on_save_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Adds the card."""
        checkpoint[CARD] = self.card

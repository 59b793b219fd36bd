"""A callback for tests: notes which share of the weights a process keeps at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning as L
from torch.distributed.tensor import DTensor


class LookAtShards(L.Callback):
    """Writes the share of weights, and of averages, that are here into ``folder/RANK``."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def on_train_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        tables = (list(pl_module.parameters()), pl_module.ema.shadow_params)
        kept = []
        for tensors in tables:
            here = sum((t.to_local() if isinstance(t, DTensor) else t).numel() for t in tensors)
            kept.append(here / sum(t.numel() for t in tensors))
        (self.folder / str(trainer.global_rank)).write_text(" ".join(map(str, kept)))

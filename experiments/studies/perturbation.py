"""The start of a run moved by one unit in the last place.

Two machines that round differently part in the last bits and then, by the nature of training, in
everything. A run from a start that differs in the last bits alone is what another machine would
have made of the same seed: whatever a page promises must survive it.
"""

from __future__ import annotations

from collections.abc import Iterable

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from lkf_plugin.train.seeding import derive_seed


@torch.no_grad()
def perturb_last_bit(parameters: Iterable[Tensor], seed: int) -> None:
    """Moves every weight to the next number of its type, up or down by a fair coin.

    Args:
        parameters: changed in place; zeros stay, whose neighbours are no rounding of anything.
        seed: of the coins; they touch no other generator.
    """
    generator = torch.Generator().manual_seed(derive_seed(seed, "last bit"))
    for weight in parameters:
        up = torch.rand(weight.shape, generator=generator) < 0.5
        end = torch.where(up, torch.inf, -torch.inf).to(weight)
        weight.copy_(torch.where(weight == 0, weight, torch.nextafter(weight, end)))


class PerturbStart(Callback):
    """The same for a run of ``main.py``, as one of its ``callbacks``.

    Args:
        seed: of the coins.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Before the first step; a run that is gone on with has been moved already."""
        if trainer.global_step == 0:
            perturb_last_bit((p for p in pl_module.parameters() if p.requires_grad), self.seed)


def perturbed_start(seed: int) -> list[str]:
    """What to add to the command line of ``main.py``, which its run folder then records."""
    target = f"{PerturbStart.__module__}.{PerturbStart.__qualname__}"
    return [f"+callbacks.perturb_start._target_={target}", f"+callbacks.perturb_start.seed={seed}"]

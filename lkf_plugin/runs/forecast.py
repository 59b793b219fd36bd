"""On a CPU, says early how long a run will take and what it needs, while it costs nothing to stop.

The defaults are the paper's, for GPUs; on a laptop they would run for months.
"""

from __future__ import annotations

import time
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback
from omegaconf.errors import OmegaConfBaseException

from lkf_plugin.config.memory import BUDGET, estimate, on_cpu

LONG = 24 * 3600  # seconds of training from which it is said
ENOUGH_BATCHES, ENOUGH_SECONDS = 3, 2.0  # to trust the rate


class Forecast(Callback):
    """Tells memory at the start of a run on a CPU, and its duration after the first batches."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._batches = 0
        self._done = False

    def on_train_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        """Says how a step is taken in portions."""
        self._done = not on_cpu(pl_module.config) or not trainer.is_global_zero
        if not self._done and (sentence := memory_sentence(pl_module.config)):
            print(sentence, flush=True)

    def on_train_batch_end(self, trainer: L.Trainer, *args: Any, **kwargs: Any) -> None:
        """Measures; the first batch, which pays for warming up, is left out."""
        if self._done:
            return
        now = time.monotonic()
        if self._began is None:
            self._began = now
            return
        self._batches += 1
        seconds = now - self._began
        if self._batches < ENOUGH_BATCHES or seconds < ENOUGH_SECONDS:
            return
        self._done = True
        per_step = seconds / self._batches * trainer.accumulate_grad_batches
        if sentence := duration_sentence(trainer.max_steps - trainer.global_step, per_step):
            print(sentence, flush=True)


def memory_sentence(config: Any) -> str | None:
    """How a step is taken, where that is not in one go or needs much memory."""
    try:
        memory = estimate(config)
    except (ArithmeticError, TypeError, ValueError, AttributeError, OmegaConfBaseException):
        return None  # a network of MDLM's that the estimate does not know
    loader, portions = config.loader, config.trainer.accumulate_grad_batches
    peak = memory.of_batch(loader.batch_size)
    if portions == 1 and peak <= BUDGET:
        return None
    sentence = (
        f"on this CPU a step of {loader.global_batch_size} sequences is taken as {portions} x "
        f"{loader.batch_size}, near {peak / 1e9:.1f} GB"
    )
    if memory.fixed > BUDGET:
        sentence += f", of which {memory.fixed / 1e9:.1f} GB do not depend on the batch"
    return sentence


def duration_sentence(steps: int, seconds_per_step: float) -> str | None:
    """How long it will take, where that is more than a day."""
    total = steps * seconds_per_step
    if total < LONG:
        return None
    return (
        f"this run will take about {total / 86400:.0f} days on this CPU: {steps} steps of about "
        f"{seconds_per_step:.1f} s each; lower trainer.max_steps or loader.global_batch_size, or "
        "take a smaller model such as model=lkf-tiny"
    )

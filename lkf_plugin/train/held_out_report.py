"""The last lines of a run on somebody's own text: what its figure means, and what to type next."""

from __future__ import annotations

import math
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
from hydra.core.hydra_config import HydraConfig

from lkf_plugin.data import PreparedData, TokenBatches
from lkf_plugin.data.layout import Block
from lkf_plugin.data.unigram import text_size, unigram_nats
from lkf_plugin.train.checkpoint import StepCheckpoint

_LOG2 = math.log(2.0)


@dataclass(frozen=True)
class HeldOut:
    """A held-out likelihood beside what it has to be compared with.

    Attributes:
        nll: Nats per token.
        unigram: Nats per token of a model without context on the same tokens.
        sequences: Number of held-out sequences.
        tokens: Their tokens.
        characters: Of their text.
        text_bytes: The same text's UTF-8 bytes.
    """

    nll: float
    unigram: float
    sequences: int
    tokens: int
    characters: int
    text_bytes: int

    def bits_per(self, units: int) -> float:
        """Bits of all tokens over a number of characters or bytes."""
        return self.nll * self.tokens / _LOG2 / max(units, 1)

    def sentences(self) -> str:
        """For people: the figure in three units, the figure without context, the difference."""
        gain = self.unigram - self.nll
        verdict = (
            f"context is worth {gain:.3f} nats per token"
            if gain > 0
            else "the model has learned nothing from context yet: give more text or more steps"
        )
        return (
            f"val/nll {self.nll:.3f} nats per token on {self.sequences} held-out sequences, "
            f"at most {self.bits_per(self.characters):.3f} bits per character, "
            f"{self.bits_per(self.text_bytes):.3f} per byte.\n"
            f"A model without context (the unigram of the training tokens) gets "
            f"{self.unigram:.3f} on the same tokens: {verdict}."
        )


class HeldOutReport(L.Callback):
    """Prints the report when a run has ended by itself."""

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Prints it, on one process."""
        if not trainer.is_global_zero or trainer.global_step < trainer.max_steps:
            return
        nll, step = _best(trainer)
        if nll is None:
            return
        prepared: PreparedData = trainer.datamodule.prepared  # type: ignore[attr-defined]
        config: Any = pl_module.config
        report = measure(prepared, nll, _validated(trainer, config.loader.eval_batch_size))
        print(f"\nBest at step {step}: {report.sentences()}\nNext:")
        for mode in ("sample_eval", "ppl_eval"):
            print(f"  {_command(mode, str(config.run_dir))}")
        sys.stdout.flush()


def measure(prepared: PreparedData, nll: float, sequences: int) -> HeldOut:
    """Puts a likelihood beside its unigram and the length of its text.

    Args:
        prepared: With both splits.
        nll: Nats per token of the first ``sequences`` held-out sequences.
        sequences: As many as were validated.
    """
    train, valid = _block(prepared, "train"), _block(prepared, "valid")
    held_out = valid[0][:sequences], valid[1][:sequences]
    characters, text_bytes = text_size(held_out, prepared.tokenizer)
    return HeldOut(
        nll=nll,
        unigram=unigram_nats(train, held_out, prepared.vocab_size),
        sequences=len(held_out[0]),
        tokens=int((held_out[1] == 1).sum()),
        characters=characters,
        text_bytes=text_bytes,
    )


def _block(prepared: PreparedData, split: str) -> Block:
    columns = TokenBatches(getattr(prepared, split)).columns
    ids, mask = (np.concatenate(columns[name]) for name in ("input_ids", "attention_mask"))
    return ids, mask


def _validated(trainer: L.Trainer, batch_size: int) -> int:
    """How many held-out sequences a validation saw."""
    (batches,) = trainer.num_val_batches
    return int(batches) * batch_size * trainer.world_size


def _best(trainer: L.Trainer) -> tuple[float | None, int]:
    """The value that best.ckpt holds, which evaluation reads, and its step."""
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(callback, StepCheckpoint) and callback.best_value is not None:
            return callback.best_value, callback.best_step
    value = trainer.callback_metrics.get("val/nll")
    return (None if value is None else float(value)), trainer.global_step


def _command(mode: str, run_dir: str) -> str:
    """The command that was typed, with another mode."""
    typed = HydraConfig.get().overrides.task if HydraConfig.initialized() else []
    kept = [word for word in typed if not word.startswith("mode=")]
    if not kept:
        kept = [f"run_dir={run_dir}"]
    program = "python main.py" if Path(sys.argv[0]).name == "main.py" else "lkf"
    return " ".join([program, *map(shlex.quote, kept), f"mode={mode}"])

"""A callback for tests: sends this process a signal at one point of the run."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import lightning as L


class SignalAt(L.Callback):
    """Signal ``name`` when ``hook`` runs with ``step`` optimizer steps done, once."""

    def __init__(self, step: int, hook: str, name: str, mark: str | None = None) -> None:
        self.step, self.name = step, name
        self.mark = None if mark is None else Path(mark)  # there once it was sent, also later
        self.sent = self.mark is not None and self.mark.exists()
        setattr(self, hook, self.send)

    def send(self, trainer: L.Trainer, *args: Any) -> None:
        if trainer.global_step == self.step and not self.sent and not trainer.sanity_checking:
            self.sent = True
            if self.mark is not None:
                self.mark.touch()
            os.kill(os.getpid(), getattr(signal, self.name))

"""What a training has cost: CPU seconds of its steps, kept in its checkpoints.

For comparisons at equal cost. Validation, preparation and what other processes take do not count,
and a run that goes on goes on counting. Add it as a callback::

    python main.py ... +callbacks.cpu_seconds._target_=lkf_plugin.train.cpu_seconds.CpuSeconds
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from lightning.pytorch.callbacks import Callback

KEY = "seconds"


class CpuSeconds(Callback):
    """Counts this process's CPU seconds, of all its threads, between begin and end of a batch."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = 0.0

    def on_train_batch_start(self, *args: Any, **kwargs: Any) -> None:
        """Looks at the clock."""
        self._began = time.process_time()

    def on_train_batch_end(self, *args: Any, **kwargs: Any) -> None:
        """Adds what the batch took."""
        self.seconds += time.process_time() - self._began

    def state_dict(self) -> dict[str, Any]:
        """For the checkpoint."""
        return {KEY: self.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """From the checkpoint of a run that goes on."""
        self.seconds = float(state_dict[KEY])


def cpu_seconds(checkpoint: Mapping[str, Any]) -> float | None:
    """What a checkpoint says of its run's cost; None of a run without the callback."""
    state = (checkpoint.get("callbacks") or {}).get(CpuSeconds.__qualname__)
    return None if state is None else float(state[KEY])

"""CPU seconds of a training by the real command: kept in the checkpoint, gone on with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig

from lkf_plugin.train.cpu_seconds import CpuSeconds, cpu_seconds

Compose = Callable[..., DictConfig]
CLOCK = f"+callbacks.cpu_seconds._target_={CpuSeconds.__module__}.{CpuSeconds.__qualname__}"


def last(folder: Path) -> dict[str, Any]:
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)


def test_a_run_that_goes_on_goes_on_counting(
    tiny: Compose, run: Callable[[DictConfig], Any], tmp_path: Path
):
    run(tiny(CLOCK, f"run_dir={tmp_path}", "trainer.max_steps=2"))
    first = cpu_seconds(last(tmp_path))
    run(tiny(CLOCK, f"run_dir={tmp_path}", "trainer.max_steps=4"))
    second = cpu_seconds(last(tmp_path))
    assert first is not None and second is not None and 0 < first < second

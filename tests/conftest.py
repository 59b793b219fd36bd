"""Two threads at most, and no command launched before a test begins."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hydra.core.hydra_config import HydraConfig

torch.set_num_threads(min(2, torch.get_num_threads()))


@pytest.fixture(autouse=True)
def no_command_before() -> Iterator[None]:
    """A test that runs `main.py` in this process leaves its folder behind as Hydra's own."""
    yield
    HydraConfig.instance().cfg = None

"""Reading the golden arrays that MDLM's own code computed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

GOLDEN = Path(__file__).parent / "golden"
SUBS_FILES = tuple(
    f"mdlm/subs_mask_{where}_{precision}.npz"
    for where in ("inside", "last")
    for precision in ("f32", "f64")
)


def load(name: str) -> dict[str, Tensor]:
    """All arrays of one file as tensors."""
    with np.load(GOLDEN / name) as arrays:
        return {key: torch.from_numpy(arrays[key]) for key in arrays.files}


def assert_matches(actual: Tensor, golden: Tensor) -> None:
    """Equal bits, else 4e-15 relative in float64 and one rounding in float32."""
    if torch.equal(actual, golden):
        return
    rtol = 4e-15 if golden.dtype == torch.float64 else 2e-7
    torch.testing.assert_close(actual, golden, rtol=rtol, atol=rtol)

"""Stored arrays that upstream code computed, and the bounds within which ours must meet them.

An array of tests/golden was computed on one machine. Another machine's exp, log and order of
summation round elsewhere, and so does the same machine under another ATEN_CPU_CAPABILITY: bits are
compared only between two computations of one machine, and a stored array is met to rounding. What
is drawn is a whole number and equal everywhere, unless a draw is so close that rounding decides
it; ``decided`` and ``ClosestRace`` show that none is.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

GOLDEN = Path(__file__).parent / "golden"
SUBS_FILES = tuple(
    f"mdlm/subs_mask_{where}_{precision}.npz"
    for where in ("inside", "last")
    for precision in ("f32", "f64")
)
# Largest error relative to the element, or to the operand that it is the difference of.
ROUNDING = {torch.float64: 4e-15, torch.float32: 4 * 2.0**-23}
DECIDED = 1e-5  # a draw with this relative margin is the same in float32 on every machine


def load(name: str) -> dict[str, Tensor]:
    """All arrays of one file as tensors."""
    with np.load(GOLDEN / name) as arrays:
        return {key: torch.from_numpy(np.asarray(arrays[key])) for key in arrays.files}


def assert_matches(actual: Tensor, golden: Tensor, name: str, operand: float = 0.0) -> None:
    """``actual`` is ``golden`` to rounding: 4e-15 in float64, 4 units of 2^-23 in float32.

    Args:
        actual: what we computed, of the stored array's shape and dtype.
        golden: the stored array.
        name: what the message calls it.
        operand: size of the numbers whose difference an element is, if that is more than the
            element: 1 - exp(-sigma) is no more exact than the 1.

    Raises:
        AssertionError: with the array's name and its worst element.
    """
    assert actual.dtype == golden.dtype, f"{name}: {actual.dtype}, stored as {golden.dtype}"
    assert actual.shape == golden.shape, f"{name}: {actual.shape}, stored as {golden.shape}"
    if golden.numel() == 0:
        return
    allowed = ROUNDING[golden.dtype] * golden.abs().clamp_min(operand).double()
    error = (actual.double() - golden.double()).abs()
    error = torch.where(actual == golden, 0.0, error)  # infinities, and zeros that allow nothing
    excess = torch.where(error == 0, 0.0, error / allowed).nan_to_num(math.inf, math.inf)
    worst = np.unravel_index(int(excess.argmax()), golden.shape)
    assert excess.max() <= 1, (
        f"{name}{[int(i) for i in worst]} is {actual[worst].item()!r}, stored "
        f"{golden[worst].item()!r}: {excess.max().item():.3g} times the allowed rounding; "
        f"{int((excess > 1).sum())} of {excess.numel()} elements are off"
    )


def decided(uniform: Tensor, chance: Tensor) -> bool:
    """Whether no comparison ``uniform < chance`` hangs on the last bits of ``chance``."""
    gap = (uniform - chance).abs() / chance
    return bool((gap > DECIDED).all())


class ClosestRace:
    """Watches ``torch.argmax`` and keeps how closely a first place was won, relative to it.

    A drawn token is the argmax of a race. If ``margin`` stays above ``DECIDED``, the tokens do not
    hang on the last bits of a machine's log and exp.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.margin = math.inf
        self._argmax = torch.argmax
        monkeypatch.setattr(torch, "argmax", self)
        monkeypatch.setattr(Tensor, "argmax", lambda scores, dim=None: self(scores, dim=dim))

    def __call__(self, scores: Tensor, dim: int | None = None) -> Tensor:
        """``torch.argmax``, watched."""
        first, second = scores.topk(2, dim=-1 if dim is None else dim).values.unbind(-1)
        self.margin = min(self.margin, float(((first - second) / first.abs()).min()))
        return self._argmax(scores, dim=dim)

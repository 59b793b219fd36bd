"""Counter-based random numbers: a draw is a function of its coordinates, nothing else.

A uniform depends on (row seed, step, position, stream) only. So a row's path is the same in any
batch, with any other rows pruned, on any device, and a shared stream is a shared seed.
"""

from __future__ import annotations

from enum import IntEnum

import torch
from torch import Tensor


class Stream(IntEnum):
    """What a draw is for; streams are independent."""

    REVEAL = 1
    TOKEN = 2
    COMPONENT = 3
    SCORE_TIME = 4
    SCORE_MASK = 5
    SELECT = 6


def _signed(value: int) -> int:
    """A 64-bit pattern as the int64 that torch stores."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_MUL_A = _signed(0xBF58476D1CE4E5B9)
_MUL_B = _signed(0x94D049BB133111EB)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift of int64."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _scramble(x: Tensor) -> Tensor:
    """The splitmix64 finaliser (Steele, Lea and Flood 2014) after a golden-ratio step."""
    x = x + _GOLDEN
    x = (x ^ _shift(x, 30)) * _MUL_A
    x = (x ^ _shift(x, 27)) * _MUL_B
    return x ^ _shift(x, 31)


def mix(*parts: Tensor | int) -> Tensor:
    """One int64 seed from any number of int64 parts, broadcast together."""
    tensors = [p for p in parts if isinstance(p, Tensor)]
    device = tensors[0].device if tensors else torch.device("cpu")
    out = torch.zeros((), dtype=torch.int64, device=device)
    for part in parts:
        word = part if isinstance(part, Tensor) else torch.tensor(_signed(part), device=device)
        out = _scramble(out ^ word)
    return out


def uniforms(seed_R: Tensor, step: int, length: int, stream: Stream) -> Tensor:
    """float64 uniforms in (0, 1) with 53 random bits, shape [R, length]."""
    positions = torch.arange(length, device=seed_R.device)
    bits = mix(seed_R[:, None], int(stream), step, positions[None])
    return (_shift(bits, 11).double() + 0.5) * 2.0**-53

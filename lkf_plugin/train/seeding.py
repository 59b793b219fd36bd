"""Random numbers as a pure function of where a run stands.

Every training micro-step, validation batch and sampling batch seeds torch's global generators from
the run's seed and its own position. So a resumed run draws what an unbroken one draws, validation
draws the same masks each time and for each model, and samples do not depend on what ran before.
"""

from __future__ import annotations

import torch

_MASK = (1 << 64) - 1


def splitmix64(x: int) -> int:
    """One step of the SplitMix64 generator: a bijection of 64-bit integers that mixes all bits."""
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def derive_seed(seed: int, *position: int | str) -> int:
    """A 64-bit seed for a position such as ``('valid', batch, rank)``.

    Parts are absorbed one after the other, so ``(1, 2)`` and ``(2, 1)`` differ; a string counts
    as its UTF-8 bytes read as one number, salted by its length.
    """
    state = splitmix64(seed & _MASK)
    for part in position:
        if isinstance(part, str):
            raw = part.encode()
            part = int.from_bytes(raw, "little") * 257 + len(raw)
        while True:
            state = splitmix64(state ^ (part & _MASK))
            part >>= 64
            if part in (0, -1):
                break
    return state


def seed_position(seed: int, *position: int | str) -> None:
    """Seeds torch's global generators (CPU and every accelerator) for a position."""
    torch.manual_seed(derive_seed(seed, *position))

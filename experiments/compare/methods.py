"""What a compared method is: how it is trained, and how it is sampled."""

from __future__ import annotations

from dataclasses import dataclass

OWN, BEST = "own", "best"
CANDIDATES, SCORE_DRAWS = 8, 4  # of best-of-n, for every row without components to choose from


@dataclass(frozen=True)
class Row:
    """One method.

    Attributes:
        overrides: of the command that trains it.
        decodings: ``own``, its sampler, and ``best``, the likeliest of several chains.
        start: the row whose best checkpoint it starts from.
    """

    overrides: tuple[str, ...]
    decodings: tuple[str, ...] = (OWN, BEST)
    start: str | None = None


def components(row: str) -> int | None:
    """M of a latent-kernel row, by its name; None for a baseline."""
    return int(row.removeprefix("lkf-M")) if row.startswith("lkf-M") else None


def candidates(row: str) -> int:
    """Chains that ``best`` chooses from: one per component where there are several, else eight."""
    M = components(row)
    return CANDIDATES if M in (None, 1) else M


def row_label(row: str, decode: str) -> str:
    """How tables and figures name a row under a decoding."""
    return row if decode == OWN else f"{row}, best of {candidates(row)}"

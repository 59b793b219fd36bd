"""What the demo must show on any machine, whatever its digits.

A run's digits belong to a machine: processors round differently, and training magnifies the last
bit into another run. So each promise is a bound that every run measured here keeps with room to
spare: seeds, a start moved by one last bit, and two processors. It is no bound that a lucky
run reaches. Best of 8 at J = 1 shows the difference: at the optimum of eight components 1 / 64 of
the one-step texts are valid, and so an eighth of the best of 8; a run that shows 0.98 there has
given a component to a single configuration, which the entropy beside it tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

ONE, FROZEN = "M=1", "M=8, one frozen component"
ONE_BEST, BEST = "M=1, best of 8", "M=8, best of 8"
TREE = "tree of 4 x 2, one draw"
Valid = Mapping[tuple[str, int], float]


@dataclass(frozen=True)
class Promise:
    """The valid fraction of a row at J, less that of another row if there is one, in a range.

    Attributes:
        row, J: the cell.
        low, high: its range.
        above: the row to subtract, at the same J.
    """

    row: str
    J: int
    low: float = 0.0
    high: float = 1.0
    above: str | None = None

    def __str__(self) -> str:
        bound = f"at least {self.low:g}" if self.high == 1.0 else f"at most {self.high:g}"
        over = f" above {self.above}" if self.above else ""
        return f"{self.row}, J={self.J}: {bound}{over}"

    def value(self, valid: Valid) -> float:
        """What is bounded."""
        return valid[self.row, self.J] - (valid[self.above, self.J] if self.above else 0.0)

    def kept(self, valid: Valid) -> bool:
        """Whether a demo kept it."""
        return self.low <= self.value(valid) <= self.high


PROMISES = (
    Promise(ONE, 1, high=0.02),
    Promise(ONE, 2, high=0.05),
    Promise(ONE_BEST, 1, high=0.02),
    Promise(ONE_BEST, 2, high=0.1),
    Promise(FROZEN, 2, low=0.08, above=ONE),
    Promise(FROZEN, 4, low=0.2, above=ONE),
    Promise(FROZEN, 8, low=0.05, above=ONE),
    Promise(TREE, 1, low=0.8),
    Promise(TREE, 2, low=0.8),
    Promise(TREE, 8, low=0.8),
    Promise(TREE, 1, low=0.5, above=FROZEN),
    Promise(BEST, 1, low=0.1, above=ONE_BEST),
    Promise(BEST, 2, low=0.6, above=ONE_BEST),
    Promise(BEST, 4, low=0.9),
    Promise(BEST, 8, low=0.95),
)


def render(valid: Valid) -> str:
    """A line for each promise, and whether this demo kept it."""
    lines = ["What must hold on any machine:"]
    for promise in PROMISES:
        verdict = "kept  " if promise.kept(valid) else "BROKEN"
        lines.append(f"  {verdict} {promise} ({promise.value(valid):.3f})")
    return "\n".join(lines) + "\n"

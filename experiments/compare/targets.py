"""What every comparison on AgreeText must show, whatever its seed and machine.

The table's digits are one run's. These bounds hold for three seeds and from a start moved by one
last bit; a bound that only a lucky run keeps would be no target.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from experiments.compare.entries import Entry
from experiments.compare.methods import BEST, OWN, row_label
from lkf_plugin.corpora import agreetext
from lkf_plugin.data.corpus import VALID
from lkf_plugin.records.markdown import markdown_table

CLAUSES = 4
AR_STEPS = CLAUSES * agreetext.CLAUSE_LENGTH  # AR's J: a call per token
Entries = Mapping[str, Entry]


@dataclass(frozen=True)
class Target:
    """One line.

    Attributes:
        text: what is bounded.
        rows: which must be there.
        value: the number.
        low, high: its range.
    """

    text: str
    rows: tuple[str, ...]
    value: Callable[[Entries], float]
    low: float = -math.inf
    high: float = math.inf

    @property
    def bound(self) -> str:
        """As tables say it."""
        return f"at least {self.low:g}" if self.low > -math.inf else f"at most {self.high:g}"

    def met(self, value: float) -> bool:
        """Whether a value is in the range."""
        return self.low <= value <= self.high

    def worst(self, values: Sequence[float]) -> float:
        """The value that is nearest to missing the range, or misses it most."""
        return min(values, key=lambda value: min(value - self.low, self.high - value))


def _cell(name: str, row: str, decode: str, J: int) -> Callable[[Entries], float]:
    def value(entries: Entries) -> float:
        measured = entries[row].cells[decode, J].value(name)
        assert measured is not None
        return measured

    return value


def _likelihood(row: str, high: float) -> Target:
    """Distance from H / L, beyond two standard errors of the estimate."""

    def value(entries: Entries) -> float:
        nelbo = entries[row].nelbo.metrics["nelbo"]
        gap = abs(nelbo.value - agreetext.nelbo_optimum(CLAUSES))
        return gap - 2 * (nelbo.se or 0.0)

    return Target(f"{row}: distance of its nats from H / L, less 2 se", (row,), value, high=high)


def _valid(row: str, decode: str, J: int, low: float) -> Target:
    text = f"{row_label(row, decode)}: valid, J={J}"
    return Target(text, (row,), _cell(VALID, row, decode, J), low=low)


def _gain(row: str, decode: str, J: int, low: float) -> Target:
    """Valid share above MDLM's under the same decoding."""
    ours, theirs = (_cell(VALID, one, decode, J) for one in (row, "mdlm"))
    text = f"{row_label(row, decode)} less {row_label('mdlm', decode)}: valid, J={J}"
    return Target(text, (row, "mdlm"), lambda all_: ours(all_) - theirs(all_), low=low)


def _above_closed_form(row: str, J: int, high: float) -> Target:
    """A masked sampler without latents cannot beat its closed form but by sampling error."""
    exact = agreetext.few_step_validity(J, CLAUSES, 1, False)
    valid = _cell(VALID, row, OWN, J)
    text = f"{row}: valid less the closed form of M = 1, J={J}"
    return Target(text, (row,), lambda entries: valid(entries) - exact, high=high)


def _over_closed_form(row: str, J: int, low: float) -> Target:
    """A sampler that may change what it wrote, over a perfect masked one of eight components."""
    exact = agreetext.few_step_validity(J, CLAUSES, 8, True)
    valid = _cell(VALID, row, OWN, J)
    text = f"{row}: valid less the closed form of M = 8, J={J}"
    return Target(text, (row,), lambda entries: valid(entries) - exact, low=low)


def _entropy(row: str, decode: str, J: int, low: float) -> Target:
    text = f"{row_label(row, decode)}: configuration entropy, nats, J={J}"
    return Target(text, (row,), _cell("configuration_entropy", row, decode, J), low=low)


TARGETS = (
    _likelihood("ar", 0.005),
    *(_likelihood(row, 0.02) for row in ("mdlm", "sedd", "duo", "lkf-M1", "lkf-M4", "lkf-M8")),
    _valid("ar", OWN, AR_STEPS, 0.9),
    *(_above_closed_form(row, J, 0.06) for row in ("mdlm", "sedd") for J in (4, 8)),
    *(_valid(row, OWN, 32, 0.5) for row in ("mdlm", "sedd")),
    *(_over_closed_form("duo", J, 0.0) for J in (2, 4)),
    _entropy("duo", OWN, 4, 3.8),
    _valid("duo", BEST, 2, 0.85),
    _gain("lkf-M8", OWN, 2, 0.08),
    _gain("lkf-M8", OWN, 4, 0.2),
    _gain("lkf-M8", BEST, 2, 0.3),
    _valid("lkf-M8", BEST, 4, 0.75),
)


def asked(entries: Entries) -> list[tuple[Target, float]]:
    """The targets whose rows are there, with their values."""
    return [
        (target, target.value(entries))
        for target in TARGETS
        if all(row in entries for row in target.rows)
    ]


def render_targets(starts: Mapping[str, Entries]) -> str:
    """Markdown: a line for each target, the worst start first.

    Args:
        starts: name of a start (a seed, a perturbed one) -> its rows; a row that a start has not is
            left blank.
    """
    values: dict[str, dict[str, float]] = {}
    for start, entries in starts.items():
        for target, value in asked(entries):
            values.setdefault(target.text, {})[start] = value
    lines = []
    for target in TARGETS:
        if own := values.get(target.text):
            worst = target.worst(list(own.values()))
            verdict = "" if target.met(worst) else " **missed**"
            shown = [f"{own[start]:.3f}" if start in own else "" for start in starts]
            lines.append([target.text, target.bound, f"{worst:.3f}{verdict}", *shown])
    return markdown_table(["what", "asked", "worst", *starts], lines)

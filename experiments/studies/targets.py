"""The targets, against what was measured.

Each is a line: what is asked, by whom it is met, the worst run and all of them. A target is one of
the method, not of a machine, so it has to hold for every seed and from a perturbed start.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.studies.records import measured_values, recipe_values
from lkf_plugin.records.record import Record


@dataclass(frozen=True)
class Target:
    """One line.

    Attributes:
        study: whose records are read.
        text: what is asked.
        where: which records count.
        value: the number that is compared.
        low, high: its allowed range.
    """

    study: str
    text: str
    where: Callable[[dict[str, Any] | None], bool]
    value: Callable[[dict[str, Any]], float]
    low: float = -math.inf
    high: float = math.inf

    def met(self, value: float) -> bool:
        """Whether one run's value is in the range."""
        return self.low <= value <= self.high

    def worst(self, values: Sequence[float]) -> float:
        """The value that is nearest to missing the range, or misses it most."""
        return min(values, key=lambda value: min(value - self.low, self.high - value))


def _is(corpus: str, components: int | None = None, **more: Any) -> Callable[[Any], bool]:
    def check(recipe: dict[str, Any] | None) -> bool:
        if recipe is None or recipe["corpus"] != corpus:
            return False
        if components is not None and recipe["components"] != components:
            return False
        return all(recipe[key] == value for key, value in more.items())

    return check


def _metric(name: str) -> Callable[[dict[str, Any]], float]:
    return lambda metrics: metrics[name]["value"]


def _at(name: str, J: int) -> Callable[[dict[str, Any]], float]:
    def read(metrics: dict[str, Any]) -> float:
        value = metrics[name][metrics["J"].index(J)]
        return value["value"] if isinstance(value, dict) else value

    return read


def _recall_from_2(metrics: dict[str, Any]) -> float:
    return min(metrics["recall"][metrics["J"].index(2) :])


_HIDDEN_16 = _is("hidden", 16, ties="split")
TARGETS = (
    Target("hidden", "M=1 excess, analytic", _is("hidden", 1, form="analytic"),
           _metric("excess"), high=0.005),
    Target("hidden", "M=1 excess, learned", _is("hidden", 1, form="learned"),
           _metric("excess"), high=0.03),
    Target("hidden", "M=4 excess", _is("hidden", 4), _metric("excess"), high=0.04),
    Target("hidden", "M=4 I", _is("hidden", 4), _metric("information"), low=0.95 * math.log(4)),
    Target("hidden", "M=4 TC", _is("hidden", 4), _metric("total_correlation"), low=9.0),
    Target("hidden", "M=16 excess", _HIDDEN_16, _metric("excess"), high=0.09),
    Target("hidden", "M=16 I", _HIDDEN_16, _metric("information"), low=2.55),
    Target("hidden", "M=16 TC", _HIDDEN_16, _metric("total_correlation"), low=17.5),
    Target("support", "M=16 in-support at J=1", _HIDDEN_16, _at("in_support", 1), low=0.65),
    Target("support", "M=16 recall from J=2", _HIDDEN_16, _recall_from_2, low=1.0),
    Target("ties", "M=16 I, the global optimum", _HIDDEN_16,
           _metric("information"), low=2.70),
    Target("parity", "excess over the M=1 optimum", _is("parity"), _metric("excess"), high=0.03),
    Target("parity", "I at (0, 1)", _is("parity"), _metric("information"), high=0.02),
    Target("parity", "TC at (0, 1)", _is("parity"), _metric("total_correlation"), high=0.02),
    Target("agreetext", "M=8 L_x0 - H/L", _is("agreetext", 8),
           _metric("mixture_less_entropy"), high=-0.03),
    Target("agreetext", "M=8 marginal NELBO - H/L", _is("agreetext", 8),
           _metric("marginal_less_entropy"), high=0.02),
    Target("agreetext", "M=8 valid at J=2", _is("agreetext", 8), _at("valid", 2), low=0.2),
    Target("agreetext", "M=1 valid at J=2", _is("agreetext", 1), _at("valid", 2), high=0.02),
)  # fmt: skip


def report(study: str, records: Iterable[Record]) -> list[str]:
    """Lines ``met 3/3  M=4 TC >= 9: worst 9.18 of 9.36 9.21 9.18`` for one study."""
    records = list(records)
    lines = []
    for target in TARGETS:
        if target.study != study:
            continue
        values = [
            target.value(measured_values(record))
            for record in records
            if target.where(recipe_values(record))
        ]
        if not values:
            continue
        met = sum(map(target.met, values))
        bound = f">= {target.low:.4g}" if target.low > -math.inf else f"<= {target.high:.4g}"
        shown = " ".join(f"{value:.4f}" for value in values)
        worst = f"worst {target.worst(values):.4f} of {shown}" if len(values) > 1 else shown
        lines.append(f"  met {met}/{len(values)}  {target.text} {bound}: {worst}")
    return lines

"""Likelihood of few-step samplers, of runs that were evaluated with ``eval.steps``.

Unit: nats per token.
"""

from __future__ import annotations

import re
from typing import Any

from lkf_plugin.records.estimate import Estimate
from lkf_plugin.report.runs import SideBySide

LABEL = "bound of the J-step sampler, nats per token"
_NAME = re.compile(r"nll(?P<kind>|_frozen|_replay|_replay_frozen)@(?P<steps>\d+)")
KINDS = {"": "redrawn", "_frozen": "frozen", "_replay": "replay", "_replay_frozen": "replay frozen"}
Curves = dict[tuple[str, str], dict[int, Estimate]]


def few_step_curves(side: SideBySide) -> Curves:
    """Figures by J, of each (run, kind); of one component frozen is redrawn, and left out.

    Of several evaluations of a run and J the last one stands.
    """
    curves: Curves = {}
    for run in side.runs:
        for evaluation in run.likelihoods:
            for name, one in evaluation.get("likelihood", {}).items():
                match = _NAME.fullmatch(name)
                if match is None or ("frozen" in match["kind"] and _components(evaluation) == 1):
                    continue
                kind = KINDS[match["kind"]]
                figure = Estimate(one["value"], one["se"], one["n"])
                curves.setdefault((run.name, kind), {})[int(match["steps"])] = figure
    return {place: dict(sorted(points.items())) for place, points in curves.items()}


def _components(evaluation: dict[str, Any]) -> int:
    K, m = evaluation.get("num_components") or 1, evaluation.get("block_components") or 1
    return int(K) * int(m)


def few_step_table(side: SideBySide) -> tuple[list[str], list[list[str]]]:
    """Columns and rows: a line per run and kind, a column ``nll@J`` per J."""
    curves = few_step_curves(side)
    steps = sorted({J for points in curves.values() for J in points})
    rows = [
        [name, kind, *(_with_error(points.get(J)) for J in steps)]
        for (name, kind), points in curves.items()
    ]
    return ["run", "latents", *(f"nll@{J}" for J in steps)], rows


def _with_error(figure: Estimate | None) -> str:
    """Four decimals: differences between structures lie in the third."""
    if figure is None:
        return ""
    error = "" if figure.se is None else f" ± {figure.se:.4f}"
    return f"{figure.value:.4f}{error}"


def few_step_rows(side: SideBySide) -> list[list[Any]]:
    """Run, kind, J, value, standard error, sequences: one row per figure."""
    return [
        [name, kind, J, one.value, one.se, one.n]
        for (name, kind), points in few_step_curves(side).items()
        for J, one in points.items()
    ]

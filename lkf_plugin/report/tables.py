"""Runs side by side as Markdown and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.markdown import markdown_table
from lkf_plugin.report.few_step import LABEL, few_step_curves, few_step_rows, few_step_table
from lkf_plugin.report.runs import (
    APART,
    SideBySide,
    best_validation,
    curves,
    headline,
    nll,
    quality,
)


def with_error(estimate: Estimate) -> str:
    """A figure and its standard error, few digits."""
    value = f"{estimate.value:.4g}"
    return value if estimate.se is None else f"{value} ± {estimate.se:.2g}"


def run_table(side: SideBySide) -> tuple[list[str], list[list[str]]]:
    """Columns and rows: the settings that differ, the validations, and each likelihood."""
    columns = ["run", *side.keys, "steps", "best val/nll", "at step", "val/nll ± se", "of"]
    rows = []
    for run in side.runs:
        best = best_validation(run)
        shown = [run.name, *(_shown(run.settings.get(key)) for key in side.keys), str(run.steps)]
        shown += ["", ""] if best is None else [f"{best[1]:.4f}", str(best[0])]
        evaluated = [[with_error(nll(one)), _likelihood_of(one)] for one in run.likelihoods] or [
            ["", ""]
        ]
        rows += [[*shown, *cells] for cells in evaluated]
    return columns, rows


def _likelihood_of(evaluation: dict[str, Any]) -> str:
    parts = [Path(str(evaluation.get("checkpoint", ""))).name, f"step {evaluation.get('step')}"]
    return ", ".join(parts + ([] if evaluation.get("ema", True) else ["no average"]))


def quality_table(side: SideBySide, metric: str) -> tuple[list[str], list[list[str]]]:
    """Columns and rows: quality against J."""
    lines = curves(side, metric)
    steps = sorted({J for points in lines.values() for J in points})
    rows = [
        [name, kind, *(with_error(points[J]) if J in points else "" for J in steps)]
        for (name, kind), points in lines.items()
    ]
    return ["run", "decoded by", *(f"J={J}" for J in steps)], rows


def _shown(value: Any) -> str:
    return "" if value is None else str(value)


def _markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Names of runs and settings are anybody's, so a ``|`` in one is escaped."""
    return markdown_table(columns, [[cell.replace("|", "\\|") for cell in row] for row in rows])


def markdown(side: SideBySide) -> str:
    """The whole page."""
    parts = ["# Runs side by side", "", _markdown(*run_table(side)), ""]
    parts += [
        "`best val/nll` is the lowest validation during training; `val/nll ± se` is mode=ppl_eval, "
        "with the standard error over sequences. Both in nats per token.",
        "",
    ]
    digests = {one.get("data_digest") for run in side.runs for one in run.likelihoods}
    if len(digests) > 1:
        parts += ["**The runs have different data or tokenizers: val/nll does not compare.**", ""]
    if few_step_curves(side):
        parts += ["## Likelihood of few steps", "", _markdown(*few_step_table(side)), ""]
        parts += [f"{LABEL.capitalize()}, with standard errors over sequences.", ""]
    if metric := headline(side):
        parts += [f"## {metric} against J", "", _markdown(*quality_table(side, metric)), ""]
    if side.left_out:
        parts += ["## Left out", ""]
        parts += [f"* `{name}`: {reason}" for name, reason in side.left_out.items()]
        parts.append("")
    return "\n".join(parts)


def runs_csv(side: SideBySide) -> str:
    """One row per run and likelihood, with full precision."""
    columns = ["run", *side.keys, "steps", "best_val_nll", "best_step"]
    columns += ["val_nll", "val_nll_se", "sequences", "checkpoint", "evaluated_step", "ema"]
    rows: list[list[Any]] = []
    for run in side.runs:
        best = best_validation(run) or (None, None)
        own = [run.name, *(run.settings.get(key) for key in side.keys), run.steps, best[1], best[0]]
        evaluations: list[dict[str, Any] | None] = [*run.likelihoods] or [None]
        for one in evaluations:
            cells: list[Any] = [None] * 6
            if one is not None:
                figure = nll(one)
                checkpoint = Path(str(one.get("checkpoint", ""))).name
                cells = [
                    figure.value,
                    figure.se,
                    figure.n,
                    checkpoint,
                    one.get("step"),
                    one.get("ema"),
                ]
            rows.append([*own, *cells])
    return _csv(columns, rows)


def few_step_csv(side: SideBySide) -> str:
    """One row per run, kind of latents and J."""
    return _csv(["run", "latents", "J", "value", "se", "n"], few_step_rows(side))


def quality_csv(side: SideBySide) -> str:
    """One row per run, sample evaluation and figure."""
    own = [f"evaluated {key}" if key in side.keys else key for key in APART]
    columns = ["run", *side.keys, *own, "J", "metric", "value", "se", "n"]
    rows = [
        [
            run.name,
            *(run.settings.get(key) for key in side.keys),
            *(one.get(key) for key in APART),
            one["sampling_steps"],
            name,
            figure.value,
            figure.se,
            figure.n,
        ]
        for run in side.runs
        for one in run.samples
        for name, figure in sorted(quality(one).items())
    ]
    return _csv(columns, rows)


def _csv(columns: list[str], rows: list[list[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([["" if cell is None else cell for cell in row] for row in rows])
    return out.getvalue()

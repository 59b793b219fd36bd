"""Valid texts of AgreeText against network calls and steps, every method in one figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.compare.entries import DECODE, ROW, Entry, steps_of
from experiments.compare.methods import BEST, row_label
from lkf_plugin.corpora import agreetext
from lkf_plugin.data.corpus import VALID
from lkf_plugin.methods.method import uses_steps
from lkf_plugin.records.record import Record

COLORS = {
    "ar": "#555555",
    "mdlm": "#3465a4",
    "sedd": "#2a9d8f",
    "duo": "#8e44ad",
    "lkf-M1": "#7aa6da",
    "lkf-M4": "#e9b44c",
    "lkf-M8": "#d9730d",
}


def draw_comparison(path: Path, entries: Mapping[str, Entry], clauses: int) -> None:
    """Writes the PNG: left the own samplers by steps J, right all rows by network calls.

    Args:
        path: where to.
        entries: what has been measured, by row.
        clauses: C of the corpus, for the closed-form curves.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(12.5, 4.8), sharey=True)
    grid = [1, 2, 4, 8, 16, 32]
    for components, style in ((1, ":"), (4, "--"), (8, "-.")):
        exact = [agreetext.few_step_validity(J, clauses, components, components > 1) for J in grid]
        label = f"closed form, M={components}"
        left.plot(grid, exact, style, color="#9a9a9a", linewidth=1.2, label=label)
    draw_rows(left, right, entries, VALID)
    left.set_ylabel("fraction of valid texts")
    for axes, ticks in ((left, grid), (right, [1, 2, 4, 8, 16, 32, 64, 128, 256])):
        axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.set_ylim(-0.03, 1.03)
        axes.grid(alpha=0.25)
        axes.legend(fontsize=7.5, loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def draw_rows(left: Any, right: Any, entries: Mapping[str, Entry], metric: str) -> None:
    """Own samplers by steps J on the left; all rows by the method's calls on the right."""
    for row, color in COLORS.items():
        for decode, axes_list in (("own", (left, right)), ("best", (right,))):
            points = entries.get(row, Entry()).under(decode)
            for axes in axes_list if points else ():
                draw_row(axes, points, metric, color, by_steps=axes is left)
    left.set_xlabel("sampling steps J, own samplers (DUO: one network call more)")
    right.set_xlabel("calls per delivered text, by the method's own count")


def draw_row(
    axes: Any,
    cells: Sequence[Record],
    metric: str,
    color: str,
    by_steps: bool,
) -> None:
    """One line: a row under one decoding.

    Args:
        axes: matplotlib's.
        cells: its points.
        metric: what is shown.
        color: the row's.
        by_steps: over J, else over the method's calls.
    """
    row, decode = str(cells[0].labels[ROW]), str(cells[0].labels[DECODE])
    figures = [cell.metrics[metric] for cell in cells]
    best = decode == BEST
    axes.errorbar(
        [steps_of(cell) if by_steps else cell.value("calls") for cell in cells],
        [figure.value for figure in figures],
        yerr=[figure.se or 0.0 for figure in figures],
        label=row_label(row, decode),
        color=color,
        linestyle="--" if best else "-",
        marker="D" if not uses_steps(row) else ("s" if best else "o"),
        markersize=5,
        capsize=2,
    )

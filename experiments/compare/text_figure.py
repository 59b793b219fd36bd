"""Generative perplexity against steps and calls, every method in one figure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from experiments.compare.entries import Entry, all_cells, steps_of
from experiments.compare.figure import draw_rows
from lkf_plugin.records.record import Record

ENDS = (("real", "held-out text", ":"), ("shuffled", "its words shuffled", "-."))


def draw_text_comparison(
    path: Path, entries: Mapping[str, Entry], ends: Mapping[str, Record], metric: str
) -> None:
    """Writes the PNG: left the own samplers by steps J, right all rows by calls.

    Args:
        path: where to.
        entries: what has been measured, by row.
        ends: records of ``real`` and ``shuffled`` text, drawn as lines.
        metric: the judge's figure.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(12.5, 4.8), sharey=True)
    draw_rows(left, right, entries, metric)
    left.set_ylabel(f"{metric}, log scale")
    cells = all_cells(entries)
    spent = [cell.value("calls") or 0.0 for cell in cells]
    for axes, most in ((left, max(map(steps_of, cells))), (right, max(spent))):
        for end, name, style in ENDS:
            level = ends[end].metrics[metric].value
            axes.axhline(level, linestyle=style, color="#9a9a9a", linewidth=1.2, label=name)
        ticks = [2**power for power in range(12) if 2**power <= 1.5 * most]
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.grid(alpha=0.25)
        axes.legend(fontsize=7.5)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)

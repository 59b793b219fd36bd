"""Generative perplexity against steps and calls, every method in one figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.compare.figure import COLORS, draw_row

ENDS = (("real", "held-out text", ":"), ("shuffled", "its words shuffled", "-."))


def draw_text_comparison(
    path: Path, cells: Sequence[Mapping[str, Any]], ends: Mapping[str, Any], metric: str
) -> None:
    """Writes the PNG: left the own samplers by steps J, right all rows by calls.

    Args:
        path: where to.
        cells: ``row``, ``decode``, ``J``, ``steps_calls`` and ``metrics`` of each cell.
        ends: metrics of ``real`` and ``shuffled`` text, drawn as lines.
        metric: the judge's figure.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(12.5, 4.8), sharey=True)
    for row, color in COLORS.items():
        for decode, axes_list in (("own", (left, right)), ("best", (right,))):
            points = [c for c in cells if c["row"] == row and c["decode"] == decode]
            points.sort(key=lambda cell: cell["J"])
            figures = [(p["metrics"][metric]["value"], p["metrics"][metric]["se"]) for p in points]
            for axes in axes_list if points else ():
                draw_row(axes, points, figures, color, by_steps=axes is left)
    left.set_xlabel("sampling steps J, own samplers (DUO: one network call more)")
    right.set_xlabel("calls a delivered text, by the method's own count")
    left.set_ylabel(f"{metric}, log scale")
    for axes, key in ((left, "J"), (right, "steps_calls")):
        for end, name, style in ENDS:
            level = ends[end][metric]["value"]
            axes.axhline(level, linestyle=style, color="#9a9a9a", linewidth=1.2, label=name)
        most = max(cell[key] for cell in cells)
        ticks = [2**power for power in range(12) if 2**power <= 1.5 * most]
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.grid(alpha=0.25)
        axes.legend(fontsize=7.5)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)

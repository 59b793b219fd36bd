"""Runs side by side as a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lkf_plugin.report.few_step import KINDS, LABEL, Curves, few_step_curves
from lkf_plugin.report.runs import Run, SideBySide, curves, headline


def draw(side: SideBySide, path: Path) -> Path:
    """val/nll against the step; against J likelihood of few steps, and quality of samples."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    metric = headline(side)
    drawn = curves(side, metric) if metric else {}
    few = few_step_curves(side)
    panels = 1 + bool(few) + bool(drawn)
    figure, axes = pyplot.subplots(1, panels, figsize=(6.4 * panels, 4.4), squeeze=False)
    colors = {
        run.name: pyplot.get_cmap("viridis")(i / max(len(side.runs) - 1, 1) * 0.9)
        for i, run in enumerate(side.runs)
    }
    labels = {run.name: _label(run, side.keys) for run in side.runs}
    left = axes[0][0]
    for run in side.runs:
        if run.curve:
            steps, values = zip(*run.curve, strict=True)
            left.plot(
                steps, values, marker="o", ms=3, color=colors[run.name], label=labels[run.name]
            )
    left.set_xlabel("optimizer step")
    left.set_ylabel("val/nll, nats per token")
    if few:
        _draw_few_steps(axes[0][1], few, colors, labels)
    if drawn and metric:
        right = axes[0][-1]
        markers = dict(zip(dict.fromkeys(kind for _, kind in drawn), "osD^vP*X" * 8, strict=False))
        for (name, kind), points in drawn.items():
            right.errorbar(
                list(points),
                [one.value for one in points.values()],
                [one.se or 0.0 for one in points.values()],
                marker=markers[kind],
                ms=4,
                capsize=2,
                color=colors[name],
                label=f"{labels[name]}, {kind}",
            )
        right.set_xscale("log", base=2)
        if metric.startswith("gen_ppl") and all(
            math.isfinite(one.value) and one.value > 0 for p in drawn.values() for one in p.values()
        ):
            right.set_yscale("log")
        right.set_xlabel("steps J")
        right.set_ylabel(metric)
    for one in axes[0]:
        one.grid(alpha=0.25)
        if one.get_legend_handles_labels()[0]:
            many = len(one.get_legend_handles_labels()[0]) > 6
            place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14)} if many else {}
            one.legend(fontsize=7, ncols=1 + many, **place)
    figure.tight_layout()
    figure.savefig(path, dpi=150, bbox_inches="tight")
    pyplot.close(figure)
    return path


def _draw_few_steps(axes: Any, few: Curves, colors: Any, labels: Mapping[str, str]) -> None:
    """Bounds of the J-step samplers; what is frozen or replayed is dashed."""
    for (name, kind), points in few.items():
        first = kind == next(iter(KINDS.values()))
        axes.errorbar(
            list(points),
            [one.value for one in points.values()],
            [one.se or 0.0 for one in points.values()],
            marker="o",
            ms=4,
            capsize=2,
            linestyle="-" if first else "--",
            color=colors[name],
            label=f"{labels[name]}, {kind}",
        )
    axes.set_xscale("log", base=2)
    axes.set_xlabel("steps J")
    axes.set_ylabel(LABEL)


def _label(run: Run, keys: Sequence[str]) -> str:
    """What distinguishes a run, in as few words as possible."""
    short = [key.rpartition(".")[2] for key in keys]
    parts = [
        f"{one if short.count(one) == 1 else key}={Path(str(run.settings[key])).name}"
        for key, one in zip(keys, short, strict=True)
        if run.settings.get(key) is not None
    ]
    return ", ".join(parts[:4]) or run.name

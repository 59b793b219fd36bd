"""Nats per token against the number of steps, with the lines that bound the picture."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.latents.arms import Study
from experiments.latents.measure import CEILING, EXACT
from experiments.latents.tables import Measured
from lkf_plugin.records.record import Record

COLORS = ("#8a8a8a", "#3465a4", "#d9730d", "#2e8b57", "#8e44ad", "#c0392b", "#5d4037")
GREY = "#8a8a8a"


def draw(
    path: Path, study: Study, runs: Sequence[Measured], title: str, exact: Sequence[Record] = ()
) -> None:
    """Writes the PNG: bounds of every arm (mean over seeds), EM's ceilings at J = 1.

    Args:
        path: of the picture.
        study: whose runs they are.
        runs: the curves.
        title: above them.
        exact: records of the autoregressive model, a line.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.0, 4.4))
    measured = {run.arm for run in runs}
    arms = [arm for arm in study.rows if arm in measured]
    for color, arm in zip(itertools.cycle(COLORS), arms, strict=False):
        own = [run.likelihood for run in runs if run.arm == arm]
        means = [_mean(own, f"nll@{J}") for J in study.steps]
        axes.plot(study.steps, means, color=color, marker="o", markersize=4, label=arm)
        ceiling = _mean(own, CEILING)
        axes.plot([study.steps[0]], [ceiling], color=color, marker="_", markersize=14)
    if study.optimum is not None:
        least = "no model below"
        axes.axhline(study.optimum, color=GREY, linestyle=":", linewidth=1.2, label=least)
    elif baseline := [run.likelihood for run in runs if run.arm == study.baseline]:
        last = study.steps_of(study.baseline)[-1]
        label = f"{study.baseline}, J={last}"
        axes.axhline(
            _mean(baseline, f"nll@{last}"), color=GREY, linestyle=":", linewidth=1.2, label=label
        )
    if exact:
        nats = _mean(exact, EXACT)
        axes.axhline(nats, color="black", linestyle="-.", linewidth=1.0, label="AR, exact")
    axes.set_xscale("log", base=2)
    axes.set_xticks(study.steps, [str(J) for J in study.steps])
    axes.set_xlabel("sampling steps J")
    axes.set_ylabel("bound of the J-step sampler, nats per token")
    axes.set_title(f"{title}; dashes at J=1: what EM reaches", fontsize=10, loc="left")
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _mean(records: Sequence[Any], metric: str) -> float:
    values = [record.value(metric) for record in records]
    return sum(values) / len(values)

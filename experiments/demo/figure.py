"""The demo's picture: what two-step samples look like, and validity against the steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from experiments.demo.promises import BEST, FROZEN, ONE, ONE_BEST, TREE
from lkf_plugin.corpora import agreetext

BLUE, ORANGE, GREEN, GREY, RED = "#3465a4", "#d9730d", "#2e8b57", "#8a8a8a", "#c0392b"
STYLES: dict[str, dict[str, Any]] = {
    ONE: {"color": BLUE, "marker": "o", "linestyle": "-"},
    FROZEN: {"color": ORANGE, "marker": "o", "linestyle": "-"},
    TREE: {"color": GREEN, "marker": "D", "linestyle": "-"},
    ONE_BEST: {"color": BLUE, "marker": "s", "linestyle": "--"},
    BEST: {"color": ORANGE, "marker": "s", "linestyle": "--"},
}
Points = Sequence[tuple[int, float, float]]
HEAD, GAP = 1.15, 0.7  # lines that a sample's heading and the space below it take


def draw_figure(
    path: Path, curves: Mapping[str, Points], samples: Mapping[str, Tensor], clauses: int
) -> None:
    """Writes the PNG.

    Args:
        path: where to.
        curves: row name -> (J, valid fraction, standard error).
        samples: row name -> [n, L] tokens; the first of each is shown, its faults in red.
        clauses: C of the corpus, for the closed-form curves.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(
        1, 2, figsize=(12.5, 5.8), gridspec_kw={"width_ratios": [1.25, 1]}
    )
    _draw_samples(left, samples, clauses)
    _draw_curves(right, curves, clauses)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _draw_samples(axes: Any, samples: Mapping[str, Tensor], clauses: int) -> None:
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_title("first sample of each, 2 steps; red words disagree", loc="left", fontsize=11)
    words = [*agreetext.words(), "____"]
    y, line = 0.97, 0.97 / (len(samples) * (HEAD + clauses + GAP))
    for row, x_GL in samples.items():
        faults_L = agreetext.faults(x_GL[:1])[0].tolist()
        wrong = sum(faults_L)
        verdict = "valid" if wrong == 0 else f"{wrong} words wrong"
        color = STYLES[row]["color"]
        axes.text(0, y, f"{row}: {verdict}", fontsize=9.5, weight="bold", color=color, va="top")
        y -= HEAD * line
        tokens = x_GL[0].tolist()
        for start in range(0, len(tokens), agreetext.CLAUSE_LENGTH):
            stop = start + agreetext.CLAUSE_LENGTH
            _draw_words(axes, y, [words[t] for t in tokens[start:stop]], faults_L[start:stop])
            y -= line
        y -= GAP * line


def _draw_words(axes: Any, y: float, words: Sequence[str], faults: Sequence[bool]) -> None:
    """Words side by side, each in its own colour, spaced by a fixed-width font."""
    x, step = 0.02, 0.0112
    for word, fault in zip(words, faults, strict=True):
        axes.text(
            x,
            y,
            word,
            fontsize=8,
            family="monospace",
            va="top",
            color=RED if fault else "#222222",
            weight="bold" if fault else "normal",
        )
        x += step * (len(word) + 1)


def _draw_curves(axes: Any, curves: Mapping[str, Points], clauses: int) -> None:
    grid = [1, 2, 4, 8, 16, 32]
    for components, label in ((1, "closed form, M=1"), (8, "closed form, M=8 frozen")):
        exact = [
            agreetext.few_step_validity(J, clauses, components, adaptive=components > 1)
            for J in grid
        ]
        style = ":" if components == 1 else "-."
        axes.plot(grid, exact, style, color=GREY, linewidth=1.3, label=label)
    for row, points in curves.items():
        J, valid, error = zip(*points, strict=True)
        axes.errorbar(J, valid, yerr=error, label=row, capsize=2, markersize=5, **STYLES[row])
    axes.set_xscale("log", base=2)
    axes.set_xticks(grid, [str(J) for J in grid])
    axes.set_xlabel("sampling steps J")
    axes.set_ylabel("fraction of valid texts")
    axes.set_ylim(-0.03, 1.03)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8, loc="lower right")

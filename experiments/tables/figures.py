"""Figures from the records of one corpus."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from experiments.tables.advantages import best_of_n
from experiments.tables.lookup import Lookup, seed_of
from lkf_plugin.evaluate.run_records import FIRST_SEED, OWN
from lkf_plugin.methods.method import LKF
from lkf_plugin.records.record import Record

BLUE, ORANGE, GREEN, GREY, RED = "#3465a4", "#d9730d", "#4b8b3b", "#8a8a8a", "#c0392b"
CURVES: tuple[tuple[str, int, str, dict[str, Any]], ...] = (
    ("M=1, one chain", 1, "commit", {"color": BLUE, "marker": "o", "linestyle": "-"}),
    ("M=8, one chain", 8, "commit", {"color": ORANGE, "marker": "o", "linestyle": "-"}),
    ("M=1, best of 8", 1, best_of_n(8), {"color": BLUE, "marker": "s", "linestyle": "--"}),
    ("M=4, best of 4", 4, "best_of_m.nelbo", {"color": GREEN, "marker": "s", "linestyle": "--"}),
    ("M=8, best of 8", 8, "best_of_m.nelbo", {"color": ORANGE, "marker": "s", "linestyle": "--"}),
    ("M=8, halving", 8, "halving", {"color": RED, "marker": "^", "linestyle": ":"}),
    (
        "M=8, calibrated, one chain",
        8,
        "calibrated.nelbo.theta0.1",
        {"color": RED, "marker": "d", "linestyle": "-."},
    ),
)


def draw_all(lookup: Lookup, folder: Path) -> list[Path]:
    """Every figure that the records suffice for, as PNG files."""
    import matplotlib

    matplotlib.use("Agg")
    draws = {
        "steps": _steps,
        "diversity": _diversity,
        "probe": _probe,
        "components": _components,
    }
    return [path for name, draw in draws.items() if (path := draw(lookup, folder / f"{name}.png"))]


def _points(lookup: Lookup, M: int, row: str) -> list[tuple[int, float, float]]:
    points = []
    for J in lookup.steps():
        figure = lookup.figure(lookup.find(M, row, J))
        if figure is not None:
            points.append((J, figure.value, figure.se or 0.0))
    return points


def _figure_axis(axes: Any, lookup: Lookup) -> None:
    axes.set_ylabel(lookup.metric)
    if not lookup.higher_is_better:
        axes.set_yscale("log")
    axes.grid(alpha=0.25)


def _save(figure: Any, path: Path) -> Path:
    import matplotlib.pyplot as plt

    if figure.get_layout_engine() is None:
        figure.tight_layout()
    figure.savefig(path, dpi=150, metadata={"Software": None})
    plt.close(figure)
    return path


def _steps(lookup: Lookup, path: Path) -> Path | None:
    """Quality against J."""
    import matplotlib.pyplot as plt

    curves = [(label, _points(lookup, M, row), style) for label, M, row, style in CURVES]
    curves = [one for one in curves if one[1]]
    if not curves:
        return None
    figure, axes = plt.subplots(figsize=(6.4, 4.4))
    for label, points, style in curves:
        J, value, error = zip(*points, strict=True)
        axes.errorbar(J, value, yerr=error, label=label, capsize=2, markersize=5, **style)
    for name in ("real", "shuffled"):
        for record in lookup.records:
            end = lookup.figure(record)
            if record.row == name and end is not None:
                axes.axhline(end.value, color=GREY, linewidth=1, linestyle=":")
                axes.annotate(
                    f"{name} text", (0.14, end.value), xycoords=axes.get_yaxis_transform(),
                    xytext=(0, 3), textcoords="offset points", fontsize=8, color=GREY,
                )  # fmt: skip
                break
    grid = sorted({J for _, points, _ in curves for J, _, _ in points})
    axes.set_xscale("log", base=2)
    axes.set_xticks(grid, [str(J) for J in grid])
    axes.set_xlabel("sampling steps J")
    _figure_axis(axes, lookup)
    axes.legend(fontsize=8)
    return _save(figure, path)


def _diversity(lookup: Lookup, path: Path) -> Path | None:
    """Quality against pooled entropy: a gain to the left of its control is bought with variety.

    One training of each row, the first.
    """
    import matplotlib.pyplot as plt

    if not lookup.steps():
        return None
    last = max(lookup.steps())
    shown = [r for r in lookup.records if r.steps == last and lookup.figure(r) is not None]
    shown = [r for r in shown if not r.row.startswith(("probe", "deferred", "solo"))]
    shown = [r for r in shown if seed_of(r) == FIRST_SEED]
    if not shown:
        return None
    height = 3.8 + 0.17 * math.ceil(len(shown) / 3)
    figure, axes = plt.subplots(figsize=(9.0, height), layout="constrained")
    colors = {1: BLUE, 4: GREEN, 8: ORANGE}
    shown.sort(key=lambda record: record.metrics["pooled_entropy"].value)
    for i, record in enumerate(shown):
        quality, pooled = lookup.figure(record), record.metrics["pooled_entropy"]
        assert quality is not None
        axes.errorbar(
            pooled.value, quality.value, quality.se or 0.0, pooled.se or 0.0,
            color=GREY if _plain(record) else colors.get(record.num_components, RED), marker="o",
            markersize=5, elinewidth=0.6, linestyle="", label=f"{i + 1}  {_who(record)}",
        )  # fmt: skip
        lift = (5, -11, 16, -22)[i % 4]
        axes.annotate(
            str(i + 1), (pooled.value, quality.value), xytext=(0, lift), textcoords="offset points",
            fontsize=8, ha="center",
        )  # fmt: skip
    axes.set_xlabel("entropy of the pooled samples, nats")
    axes.set_title(f"J={last}", fontsize=10)
    _figure_axis(axes, lookup)
    figure.legend(fontsize=7, loc="outside lower center", ncols=3, frameon=False)
    return _save(figure, path)


def _plain(record: Record) -> bool:
    """Whether another method without components made the samples."""
    return record.method != LKF and record.num_components == 1


def _who(record: Record) -> str:
    """Which network, and how it was decoded."""
    after = record.labels.get("round")
    parts = ["" if record.method == LKF else record.method, f"round {after}" if after else ""]
    parts += ["" if _plain(record) else f"M={record.num_components}"]
    parts += ["" if record.row == OWN else record.row]
    return " ".join(filter(None, parts))


def _probe(lookup: Lookup, path: Path) -> Path | None:
    """Agreement and rank correlation of the early evidence with the full selector."""
    import matplotlib.pyplot as plt

    probes: dict[int, list[Record]] = {}
    for record in lookup.records:
        if record.policy == "probe":
            probes.setdefault(record.num_components, []).append(record)
    if not probes:
        return None
    figure, axes = plt.subplots(figsize=(5.6, 4.0))
    for M, color in zip(sorted(probes), (BLUE, ORANGE, GREEN, RED), strict=False):
        records = sorted(probes[M], key=lambda r: int(r.setting("decode.probe_step")))
        j = [int(r.setting("decode.probe_step")) for r in records]
        for name, style in (("probe_agreement", "o-"), ("probe_rank_correlation", "s--")):
            pairs = [
                (step, r.metrics[name].value)
                for step, r in zip(j, records, strict=True)
                if name in r.metrics
            ]
            if pairs:
                label = f"{name.removeprefix('probe_').replace('_', ' ')}, M={M}"
                axes.plot(*zip(*pairs, strict=True), style, color=color, label=label, markersize=5)
    axes.set_xscale("log", base=2)
    every = [record for records in probes.values() for record in records]
    ticks = sorted({int(record.setting("decode.probe_step")) for record in every})
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set_xlabel("steps before the evidence is read")
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8)
    return _save(figure, path)


def _components(lookup: Lookup, path: Path) -> Path | None:
    """Each component alone, reranked, and its share among the picks of best-of-M."""
    import matplotlib.pyplot as plt

    if not lookup.components() or not lookup.steps():
        return None
    M, last = max(lookup.components()), max(lookup.steps())
    best = lookup.find(M, "best_of_m.nelbo", last)
    solo = [lookup.figure(lookup.find(M, f"solo.k{k}", last)) for k in range(M)]
    again = [lookup.figure(lookup.find(M, f"solo.k{k}.n8.nelbo", last)) for k in range(M)]
    if best is None or not any(solo):
        return None
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(6.4, 5.2), sharex=True, gridspec_kw={"height_ratios": [2, 1]}
    )
    for offset, figures, color, label in (
        (-0.2, solo, BLUE, "alone"),
        (0.2, again, ORANGE, "best of 8 of its own"),
    ):
        places = [k + offset for k, one in enumerate(figures) if one is not None]
        values = [one.value for one in figures if one is not None]
        errors = [one.se or 0.0 for one in figures if one is not None]
        top.bar(places, values, 0.38, yerr=errors, color=color, label=label, capsize=2)
    mixture = lookup.figure(best)
    if mixture is not None:
        top.axhline(mixture.value, color=RED, linewidth=1, label=f"best of {M} components")
    _figure_axis(top, lookup)
    top.legend(fontsize=8, loc="lower center", ncols=3, bbox_to_anchor=(0.5, 1.0), frameon=False)
    shares = [lookup.value(best, f"share[{k}]") or 0.0 for k in range(M)]
    bottom.bar(range(M), shares, 0.6, color=GREY)
    bottom.axhline(1 / M, color=RED, linewidth=1)
    bottom.set_ylabel("share of picks")
    bottom.set_xlabel(f"component; H(share) of log M = {math.log(M):.2f}")
    return _save(figure, path)

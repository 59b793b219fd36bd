"""The studies' figures in the paper's layout, made from records alone, exact optimum drawn in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.studies.recipe import CLAUSES
from experiments.studies.records import measured_values
from experiments.studies.runs import ablation, perturbed, recipe_of
from lkf_plugin.corpora import agreetext
from lkf_plugin.corpora.hidden_agreement import HiddenAgreement
from lkf_plugin.records.record import Record

BLUE, ORANGE, GREEN, GREY, RED = "#3465a4", "#d9730d", "#4e9a06", "#8a8a8a", "#c0392b"
# paper, Table hidden: M -> (I, TC, NLL)
PAPER = {
    1: (0.00, 0.00, 3.50),
    2: (0.68, 4.71, 3.11),
    4: (1.30, 9.01, 2.93),
    8: (1.87, 13.02, 2.70),
    16: (2.46, 17.12, 2.56),
}
PAPER_IN_SUPPORT = {1: 0.47, 32: 0.95}


def draw(study: str, records: Sequence[Record], path: Path) -> bool:
    """Writes a study's PNG; False where the study has no figure. Perturbed starts are left out."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    records = [record for record in records if not perturbed(record)]
    if study not in _FIGURES or not records:
        return False
    panels, width, painter = _FIGURES[study]
    figure, axes = plt.subplots(1, panels, figsize=(width, 3.7), squeeze=False)
    painter(axes[0], records)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130, metadata={"Software": None})
    plt.close(figure)
    return True


def _by_components(records: Sequence[Record]) -> dict[int, list[dict[str, Any]]]:
    measured: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        if recipe_of(record).form == "analytic":
            measured[recipe_of(record).components].append(measured_values(record))
    return dict(sorted(measured.items()))


def _log_axis(axes: Any, ticks: Sequence[int], label: str) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set_xlabel(label)
    axes.grid(alpha=0.25)


def _seeds(axes: Any, values: dict[int, list[float]], color: str, label: str) -> None:
    """Mean over seeds as a line, each seed as a dot."""
    M = list(values)
    axes.plot(M, [np.mean(values[m]) for m in M], "-", color=color, label=label, zorder=3)
    for m in M:
        axes.plot([m] * len(values[m]), values[m], "o", color=color, ms=4, alpha=0.8, zorder=3)


def _sweep(corpus: str) -> Callable[[Any, Sequence[Record]], None]:
    def paint(axes: Any, records: Sequence[Record]) -> None:
        groups = _by_components(records)
        names = ("information", "total_correlation", "nll")
        titles = ("captured information", "captured total correlation", "held-out two-time NLL")
        for i, (one, name, title) in enumerate(zip(axes, names, titles, strict=True)):
            M = list(groups)
            if name == "nll":
                # exact + paired excess: the same quantity with a fraction of the noise
                values = {m: [g["optimum"] + g["excess"]["value"] for g in groups[m]] for m in M}
                exact = [groups[m][0]["optimum"] for m in M]
                label = "exact optimum" if corpus == "hidden" else "exact optimum of M=1"
                one.plot(M, exact, "--", color="black", label=label)
            else:
                values = {m: [g[name]["value"] for g in groups[m]] for m in M}
                ceiling = [groups[m][0][f"{name}_ceiling"] for m in M]
                text = "log M" if name == "information" else "(L-1) log M"
                label = f"{text} = exact optimum" if corpus == "hidden" else f"ceiling {text}"
                style = "--" if corpus == "hidden" else ":"
                one.plot(M, ceiling, style, color="black", label=label)
                if corpus == "parity":
                    one.plot(M, [0.0] * len(M), "--", color=GREEN, label="prediction: 0")
            _seeds(one, values, ORANGE if corpus == "parity" else BLUE, "measured")
            if corpus == "hidden":
                one.plot(list(PAPER), [PAPER[m][i] for m in PAPER], "x", color=RED, label="paper")
            elif name == "nll":
                low, high = min(min(v) for v in values.values()), max(exact)
                one.set_ylim(low - 0.15, high + 0.15)
            one.set_title(title, fontsize=10)
            one.set_ylabel("nats")
            _log_axis(one, sorted({*M, *PAPER}), "components M")
            one.legend(fontsize=8)

    return paint


def _probe(axes: Any, records: Sequence[Record]) -> None:
    points = [record.series["points"] for record in records]
    labels = [f"{p['t']:g}→{p['s']:g}" for p in points[0]]
    x = np.arange(len(labels))
    for one, name, title in zip(
        axes,
        ("information", "total_correlation"),
        ("captured information by transition", "captured total correlation"),
        strict=True,
    ):
        values = np.array([[p[name]["value"] for p in run] for run in points])
        spread = values.std(0, ddof=1) if len(values) > 1 else [p[name]["se"] for p in points[0]]
        exact = [p[f"{name}_exact"] for p in points[0]]
        one.bar(x, values.mean(0), 0.6, yerr=spread, color=BLUE, capsize=2, label="measured")
        one.plot(x, exact, "_", color="black", ms=26, mew=2, label="exact optimum")
        for place, value in zip(x, values.mean(0), strict=True):
            one.text(place, value + 0.02 * max(exact), f"{value:.2f}", ha="center", fontsize=8)
        one.set_xticks(x, labels, rotation=35, fontsize=8)
        one.set_ylim(0, 1.12 * max(exact))
        one.set_title(f"{title}, M=16 (mean of {len(points)} seeds)", fontsize=10)
        one.set_ylabel("nats")
        one.legend(fontsize=8)


def _modes(axes: Any, records: Sequence[Record]) -> None:
    metrics = measured_values(records[0])
    share_MV = np.array(metrics["value_share"])
    order = np.argsort(share_MV.argmax(1), kind="stable")
    picture = axes[0].imshow(share_MV[order], cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes[0].figure.colorbar(picture, ax=axes[0], fraction=0.046)
    axes[0].set_xticks(range(0, share_MV.shape[1], 3))
    axes[0].set_xlabel("value")
    axes[0].set_ylabel("component, sorted")
    axes[0].set_title("frozen components, J=1: share of each value (seed 0)", fontsize=10)

    shuffle = metrics["shuffle"]
    names = ("none", "sequence", "position")
    chain = [shuffle[f"chain_{name}"] for name in names] + [shuffle["chain_factorized"]]
    plug_in = [shuffle[f"plug_in_{name}"] for name in names] + [shuffle["plug_in_factorized"]]
    x = np.arange(4)
    axes[1].bar(x - 0.2, chain, 0.38, color=BLUE, label="chain estimator")
    axes[1].bar(x + 0.2, plug_in, 0.38, color=GREY, label="plug-in (biased)")
    exact = HiddenAgreement().total_correlation()
    axes[1].axhline(exact, color="black", ls="--", lw=1, label="exact TC")
    axes[1].set_xticks(x, ["routed", "k shuffled\nby row", "k shuffled\nby position",
                           "independent\ntokens"], fontsize=8)  # fmt: skip
    axes[1].set_ylabel("nats")
    axes[1].set_title(f"sample TC, {shuffle['samples']} samples", fontsize=10)
    axes[1].set_ylim(top=1.35 * exact)
    axes[1].legend(fontsize=8, loc="upper right", ncol=2)

    picks = ("router", "argmin", "softmax")
    runs = [record.series["selection"] for record in records]
    support = [np.mean([run[p]["in_support"]["value"] for run in runs]) for p in picks]
    distinct = [np.mean([run[p]["distinct_values"] for run in runs]) / 16 for p in picks]
    y = np.arange(3)
    axes[2].bar(y - 0.2, support, 0.38, color=BLUE, label="in support")
    axes[2].bar(y + 0.2, distinct, 0.38, color=ORANGE, label="values seen / 16")
    axes[2].set_xticks(y, ["one component", "argmin NELBO", "softmax(-NELBO)"], fontsize=8)
    axes[2].set_title(f"best of 16 at J=1, {runs[0]['samples']} samples", fontsize=10)
    axes[2].set_ylim(0, 1.25)
    axes[2].legend(fontsize=8, loc="upper right", ncol=2)


def _support(axes: Any, records: Sequence[Record]) -> None:
    colors = {1: GREY, 4: GREEN, 16: BLUE}
    for M, runs in _by_components(records).items():
        J, color = runs[0]["J"], colors.get(M, ORANGE)
        rates = np.array([[r["value"] for r in run["in_support"]] for run in runs])
        axes[0].plot(J, rates.mean(0), "o", color=color, ms=4, label=f"M={M}")
        axes[0].fill_between(J, rates.min(0), rates.max(0), color=color, alpha=0.25)
        axes[0].plot(J, runs[0]["in_support_exact"], "--", color=color, lw=1)
        recall = np.array([run["recall"] for run in runs])
        axes[1].plot(J, recall.mean(0), "o-", color=color, ms=4, label=f"M={M}")
    paper = list(PAPER_IN_SUPPORT.items())
    axes[0].plot(*zip(*paper, strict=True), "x", color=RED, label="paper, M=16")
    axes[0].plot([], [], "--", color="black", lw=1, label="exact optimum")
    for one, title in zip(axes, ("in-support rate", "recall of the 16 values"), strict=True):
        _log_axis(one, [1, 2, 4, 8, 16, 32], "sampling steps J")
        one.set_ylim(-0.03, 1.05)
        one.set_title(title, fontsize=10)
        one.legend(fontsize=8)


def _strip(groups: dict[str, list[dict[str, Any]]], axes: Any, exact: tuple[float, float]) -> None:
    x = np.arange(len(groups))
    for one, name, level, title in zip(
        axes,
        ("information", "excess"),
        exact,
        ("I at (0, 1)", "excess over the exact optimum"),
        strict=True,
    ):
        for place, runs in zip(x, groups.values(), strict=True):
            values = [run[name]["value"] for run in runs]
            one.plot([place] * len(values), values, "o", color=BLUE, ms=5, alpha=0.8)
            one.plot(place, np.mean(values), "_", color=ORANGE, ms=18, mew=2)
        one.axhline(level, color="black", ls="--", lw=1, label="exact optimum")
        one.set_xticks(x, list(groups), rotation=30, ha="right", fontsize=8)
        one.set_title(f"{title}, M=16, a dot a seed", fontsize=10)
        one.set_ylabel("nats")
        one.grid(alpha=0.25, axis="y")
        one.legend(fontsize=8)


def _ablations(axes: Any, records: Sequence[Record]) -> None:
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        groups[ablation(recipe_of(record))].append(measured_values(record))
    order = sorted(groups, key=lambda label: (label != "base", label))
    _strip({label: groups[label] for label in order}, axes, (float(np.log(16)), 0.0))


def _ties(axes: Any, records: Sequence[Record]) -> None:
    groups: dict[str, list[dict[str, Any]]] = {}
    for ties in ("none", "anneal", "balance", "split"):
        runs = [measured_values(r) for r in records if recipe_of(r).ties == ties]
        if runs:
            groups[ties] = runs
    _strip(groups, axes, (float(np.log(16)), 0.0))


def _agreetext(axes: Any, records: Sequence[Record]) -> None:
    groups = _by_components(records)
    M = list(groups)
    for name, color, label in (
        ("mixture_less_entropy", BLUE, "mixture objective"),
        ("marginal_less_entropy", ORANGE, "marginal NELBO"),
    ):
        _seeds(axes[0], {m: [g[name]["value"] for g in groups[m]] for m in M}, color, label)
    exact = [groups[m][0]["mixture_less_entropy_exact"] for m in M]
    axes[0].plot(M, exact, "--", color=BLUE, label="best known, mixture objective")
    axes[0].axhline(0.0, color=ORANGE, ls="--", label="exact optimum, marginal NELBO")
    _log_axis(axes[0], M, "components M")
    axes[0].set_ylabel("nats per token, less H/L")
    axes[0].set_title("losses against the entropy", fontsize=10)
    axes[0].legend(fontsize=8)
    colors = {1: GREY, 2: RED, 4: GREEN, 8: BLUE, 16: ORANGE}
    J = groups[M[0]][0]["J"]
    for m, runs in groups.items():
        valid = np.array([[v["value"] for v in run["valid"]] for run in runs])
        axes[1].plot(J, valid.mean(0), "o-", ms=4, lw=1, color=colors[m], label=f"M={m}")
        curve = [agreetext.few_step_validity(j, CLAUSES, m, adaptive=m > 1) for j in J]
        axes[1].plot(J, curve, "--", lw=1, color=colors[m])
    axes[1].plot([], [], "--", color="black", lw=1, label="closed form")
    _log_axis(axes[1], J, "sampling steps J")
    axes[1].set_title("valid texts, one frozen component", fontsize=10)
    axes[1].legend(fontsize=8)


def _theory(axes: Any, records: Sequence[Record]) -> None:
    metrics = measured_values(records[0])
    for d, color in zip((2, 3, 4, 5), (GREY, GREEN, BLUE, ORANGE), strict=True):
        rows = [row for row in metrics["parity"] if row["bits"] == d]
        M = [row["components"] for row in rows]
        axes[0].plot(M, [row["found"] for row in rows], "o-", color=color, label=f"d={d}")
        axes[0].plot(M, [row["bound"] for row in rows], ":", color=color)
    axes[0].plot([], [], ":", color="black", label="bound of the theorem")
    _log_axis(axes[0], [1, 2, 4, 8, 16], "components M")
    axes[0].set_title("parity: least TV found by EM", fontsize=10)
    axes[0].legend(fontsize=8)
    rates = metrics["rates"]
    axes[1].loglog(rates["deltas"], rates["errors"], "o-", color=BLUE, label="mixed generators")
    guide = rates["errors"][-1] * (np.array(rates["deltas"]) / rates["deltas"][-1]) ** 2
    axes[1].loglog(rates["deltas"], guide, "--", color="black", label="slope 2")
    axes[1].set_xlabel("step length")
    axes[1].set_title("rate mixtures: distance to a factorised step", fontsize=10)
    axes[1].grid(alpha=0.25, which="both")
    axes[1].legend(fontsize=8)


_FIGURES: dict[str, tuple[int, float, Callable[[Any, Sequence[Record]], None]]] = {
    "theory": (2, 9.5, _theory),
    "hidden": (3, 12.5, _sweep("hidden")),
    "parity": (3, 12.5, _sweep("parity")),
    "probe": (2, 10.5, _probe),
    "modes": (3, 13.5, _modes),
    "support": (2, 9.5, _support),
    "ablations": (2, 11.5, _ablations),
    "ties": (2, 9.5, _ties),
    "agreetext": (2, 10.5, _agreetext),
}

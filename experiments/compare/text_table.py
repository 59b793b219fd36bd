"""The Markdown tables of a comparison on text."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.compare.entries import Entry, all_cells, steps_of
from experiments.compare.methods import BEST, Row, components, row_label
from experiments.compare.tables import by_steps, calls, sizes
from lkf_plugin.evaluate.attribution import ONE_FEWER, WITHOUT_FAVOURITE
from lkf_plugin.methods.method import is_exact
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.markdown import markdown_table
from lkf_plugin.records.record import Record

DIVERSITY = "entropy / pooled entropy / distinct-2 / digit share"
END_NAMES = {"real": "held-out text", "shuffled": "its words shuffled"}


def render(
    entries: Mapping[str, Entry],
    rows: Mapping[str, Row],
    ends: Mapping[str, Record],
    metric: str,
) -> str:
    """All tables.

    Args:
        entries: what has been measured, by row.
        rows: what the rows are.
        ends: records of ``real`` and ``shuffled`` text.
        metric: the judge's figure.
    """
    cells = all_cells(entries)
    steps = sorted({steps_of(cell) for cell in cells})
    judged_by = " ".join(str(ends["real"].setting(f"judge.{key}")) for key in ("label", "dtype"))
    columns = [f"J={J}" for J in steps]
    losses = []
    for row, entry in entries.items():
        bound = "exact" if is_exact(row) else "NELBO"
        nats = f"{bound} {_with_error(entry.nelbo.metrics['nelbo'], 4)}"
        losses.append([row, *sizes(entry), nats])
    scale = [
        [name, _figure(ends[end], metric), _diversity(ends[end])] for end, name in END_NAMES.items()
    ]
    judged = by_steps(entries, rows, steps, lambda one: f"{_figure(one, metric)} {calls(one)}")
    counts = sorted({cell.samples or 0 for cell in cells})
    parts = [
        markdown_table(["row", "weights", "steps", "NELBO, nats per token"], losses),
        markdown_table([f"the scale's ends, judge {judged_by}", metric, DIVERSITY], scale),
        markdown_table([f"{metric} (method's calls / network calls per sample)", *columns], judged),
        markdown_table([DIVERSITY, *columns], by_steps(entries, rows, steps, _diversity)),
        *_attribution(entries, metric),
        f"{' or '.join(map(str, counts))} samples per cell; ± is a standard error, of perplexities "
        "by a bootstrap over samples. Entropies are in nats: the mean over samples of a sample's "
        "own unigram entropy, and that of all samples together.",
    ]
    return "\n\n".join(parts) + "\n"


def _attribution(entries: Mapping[str, Entry], metric: str) -> list[str]:
    """Whose gain best-of-M is: beside it the pick without the component that it picks most."""
    tables = []
    single = entries.get("lkf-M1", Entry())
    control = {steps_of(cell): cell for cell in single.under(BEST)}
    for row, entry in entries.items():
        M = components(row)
        cells = entry.under(BEST)
        if M in (None, 1) or not cells:
            continue
        columns = ["favourite", f"its share (even: {1 / M:.3f})", metric]
        columns += [f"best of {M - 1}, without it", f"lkf-M1, best of {M - 1}"]
        lines = []
        for cell in cells:
            favourite = int(cell.metrics["favourite"].value)
            texts = [str(steps_of(cell)), str(favourite)]
            texts += [_with_error(cell.metrics[f"share[{favourite}]"], 3), _figure(cell, metric)]
            texts.append(_figure(cell, f"{metric}.{WITHOUT_FAVOURITE}"))
            texts.append(_figure(control.get(steps_of(cell)), f"{metric}.{ONE_FEWER}"))
            lines.append(texts)
        tables.append(markdown_table([f"{row_label(row, BEST)}: J", *columns], lines))
    return tables


def _figure(cell: Record | None, metric: str) -> str:
    """A perplexity with its error; empty where it was not measured."""
    if cell is None or metric not in cell.metrics:
        return ""
    return _with_error(cell.metrics[metric], 0 if cell.metrics[metric].value >= 100 else 1)


def _diversity(cell: Record) -> str:
    names = (("entropy", 2), ("pooled_entropy", 2), ("distinct_2", 2), ("digit_share", 3))
    return " / ".join(f"{cell.value(name):.{digits}f}" for name, digits in names)


def _with_error(estimate: Estimate, digits: int) -> str:
    error = "" if estimate.se is None else f" ± {estimate.se:.{digits}f}"
    return f"{estimate.value:.{digits}f}{error}"

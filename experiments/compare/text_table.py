"""The Markdown tables of a comparison on text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.compare.rows import BEST, Row, components, row_label
from experiments.compare.store import Entry, all_cells
from experiments.compare.tables import by_steps, calls, header, line
from lkf_plugin.evaluate.attribution import ONE_FEWER, WITHOUT_FAVOURITE

DIVERSITY = "entropy / pooled entropy / distinct-2 / digit share"
END_NAMES = {"real": "held-out text", "shuffled": "its words shuffled"}


def render(
    entries: Mapping[str, Entry],
    rows: Mapping[str, Row],
    ends: Mapping[str, Any],
    metric: str,
    judged_by: str,
) -> str:
    """All tables.

    Args:
        entries: what has been measured, by row.
        rows: what the rows are.
        ends: metrics of ``real`` and ``shuffled`` text.
        metric: the judge's figure.
        judged_by: judge and its precision.
    """
    cells = all_cells(dict(entries))
    steps = sorted({cell["J"] for cell in cells})
    columns = [f"J={J}" for J in steps]
    lines = header(["row", "weights", "steps", "NELBO, nats a token"])
    for row, entry in entries.items():
        bound = "exact" if row == "ar" else "NELBO"
        nats = f"{bound} {_with_error(entry['nll'], entry['nll_se'], 4)}"
        lines.append(line([row, f"{entry['weights']:,}", str(entry["step"]), nats]))
    lines += ["", *header([f"the scale's ends, judge {judged_by}", metric, DIVERSITY])]
    for end, name in END_NAMES.items():
        lines.append(line([name, _figure(ends[end], metric), _diversity(ends[end])]))
    lines += ["", *header([f"{metric} (method's calls / network calls a sample)", *columns])]
    lines += by_steps(
        entries, rows, steps, lambda cell: f"{_figure(cell['metrics'], metric)} {calls(cell)}"
    )
    lines += ["", *header([DIVERSITY, *columns])]
    lines += by_steps(entries, rows, steps, lambda cell: _diversity(cell["metrics"]))
    lines += _attribution(entries, metric)
    counts = sorted({cell["samples"] for cell in cells})
    told = " or ".join(str(count) for count in counts)
    lines += [
        "",
        f"{told} samples a cell; ± is a standard error, of perplexities by a bootstrap over "
        "samples. Entropies are in nats: the mean over samples of a sample's own unigram entropy, "
        "and that of all samples together.",
    ]
    return "\n".join(lines) + "\n"


def _attribution(entries: Mapping[str, Entry], metric: str) -> list[str]:
    """Whose gain best-of-M is: beside it the pick without the component that it picks most."""
    lines: list[str] = []
    control = {cell["J"]: cell["metrics"] for cell in _best(entries.get("lkf-M1"))}
    for row, entry in entries.items():
        M = components(row)
        cells = _best(entry)
        if M in (None, 1) or not cells:
            continue
        columns = ["favourite", f"its share (even: {1 / M:.3f})", metric]
        columns += [f"best of {M - 1}, without it", f"lkf-M1, best of {M - 1}"]
        lines += ["", *header([f"{row_label(row, BEST)}: J", *columns])]
        for cell in sorted(cells, key=lambda one: one["J"]):
            found = cell["metrics"]
            favourite = int(found["favourite"]["value"])
            share = found[f"share[{favourite}]"]
            texts = [str(cell["J"]), str(favourite)]
            texts += [_with_error(share["value"], share["se"], 3), _figure(found, metric)]
            texts.append(_figure(found, f"{metric}.{WITHOUT_FAVOURITE}"))
            texts.append(_figure(control.get(cell["J"], {}), f"{metric}.{ONE_FEWER}"))
            lines.append(line(texts))
    return lines


def _best(entry: Entry | None) -> list[dict[str, Any]]:
    return [cell for cell in entry["cells"] if cell["decode"] == BEST] if entry else []


def _figure(found: Mapping[str, Any], metric: str) -> str:
    """A perplexity with its error; empty where it was not measured."""
    if metric not in found:
        return ""
    value = found[metric]["value"]
    return _with_error(value, found[metric]["se"], 0 if value >= 100 else 1)


def _diversity(found: Mapping[str, Any]) -> str:
    names = (("entropy", 2), ("pooled_entropy", 2), ("distinct_2", 2), ("digit_share", 3))
    return " / ".join(f"{found[name]['value']:.{digits}f}" for name, digits in names)


def _with_error(value: float, error: float | None, digits: int) -> str:
    return f"{value:.{digits}f}" + ("" if error is None else f" ± {error:.{digits}f}")

"""What the page says of the latent: likelihood of few steps, components of samples and blocks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lkf_plugin.errors import UserError
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.record import Record
from lkf_plugin.records.store import read_records
from lkf_plugin.report.few_step import few_step_curves, few_step_table
from lkf_plugin.report.markup import escaped, table
from lkf_plugin.report.runs import Run, SideBySide
from lkf_plugin.report.svg import COLORS, Axis, Series, chart
from lkf_plugin.report.tables import with_error

# --- likelihood of few steps ---------------------------------------------------------------------


def few_step_section(side: SideBySide) -> str:
    """Bounds on the J-step samplers' own likelihood, of evaluations with ``eval.steps``."""
    known = few_step_curves(side)
    if not known:
        return ""
    number = {run.name: place for place, run in enumerate(side.runs)}
    marks = list(dict.fromkeys(kind for _, kind in known))
    series = [
        Series(
            f"{run}, {kind}",
            [(J, one.value, one.se) for J, one in points.items()],
            number[run],
            marks.index(kind),
            marks.index(kind) % 2 == 1,
        )
        for (run, kind), points in known.items()
    ]
    steps = sorted({J for points in known.values() for J in points})
    axes = Axis("steps J", log=True, ticks=steps), Axis("nats per token")
    note = (
        '<p class="quiet">The few-step NELBO, in nats per token, bounds the likelihood of the '
        "J-step sampler on held-out text (<code>lkf eval RUN eval.steps=[1,2,4,8]</code>): lower "
        "is better, no judge. The latent is redrawn in every step, or drawn once (frozen).</p>"
    )
    drawn = f'<div class="charts">{chart("Few-step NELBO", series, *axes)}</div>'
    return "\n".join([drawn, note, table(*few_step_table(side))])


# --- components ----------------------------------------------------------------------------------


def components_section(side: SideBySide, folder: Path) -> str:
    """Which components the samples came from, and how good each is alone where that is known."""
    parts: list[str] = []
    for run in side.runs:
        place = folder / run.name
        place = place if place.is_dir() else folder
        shown = [*_of_samples(run, place), *_of_records(place)]
        if shown:
            parts += [f"<h3>{escaped(run.name)}</h3>", *shown]
    if not parts:
        return ""
    note = (
        '<p class="quiet">The share of each component among the delivered samples; one component '
        "that takes all is a narrow model. A component's figure alone is that of all its chains, "
        "picked or not (<code>scripts/evaluate.py</code>).</p>"
    )
    return "\n".join([note, *parts])


def several(run: Run) -> bool:
    """Whether a run has more than one component, of its sequences or of their blocks."""
    counts = (run.settings.get(f"model.{key}") for key in ("num_components", "block_components"))
    return any(isinstance(count, int) and count > 1 for count in counts)


def _of_samples(run: Run, place: Path) -> list[str]:
    total = run.settings.get("model.num_components", 1)
    parts = []
    for path in sorted((place / "samples").glob("*.json")):
        one = json.loads(path.read_text(encoding="utf-8"))
        rows = _rows(path.with_suffix(".jsonl"))
        who = Counter(row["component"] for row in rows if isinstance(row.get("component"), int))
        if not who or not isinstance(total, int) or total < 2:
            continue
        title = f"{one.get('policy')}, J = {one.get('sampling_steps')}, {who.total()} samples"
        shares = [who[k] / who.total() for k in range(max(total, max(who) + 1))]
        parts.append(_shares(title, shares, {}))
    return parts


def _of_records(place: Path) -> list[str]:
    if not (place / "records").is_dir():
        return []
    try:
        records = list(read_records(place / "records"))
    except UserError as error:
        return [f'<p class="warn">{escaped(error)}</p>']
    return [shown for record in records if (shown := _of_record(record))]


def _of_record(record: Record) -> str:
    shares: list[float] = []
    while (one := record.metrics.get(f"share[{len(shares)}]")) is not None:
        shares.append(one.value)
    if not shares:
        return ""
    alone: dict[int, tuple[str, Estimate]] = {}
    for name, figure in record.metrics.items():
        metric, solo, number = name.partition(".solo[")
        if solo:
            alone[int(number.rstrip("]"))] = (metric, figure)
    return _shares(f"record {record.name}", shares, alone)


def _shares(title: str, shares: Sequence[float], alone: dict[int, tuple[str, Estimate]]) -> str:
    """A table with a bar for each component, in its colour."""
    metric = next((name for name, _ in alone.values()), None)
    columns = ["component", *([f"{metric} alone"] if metric else []), "share"]
    rows = [
        [
            str(k),
            *([with_error(alone[k][1]) if k in alone else ""] if metric else []),
            f"{share:.3f}",  # beside its bar
        ]
        for k, share in enumerate(shares)
    ]
    bars = [
        f'<div class="bar s{k % COLORS}" style="width:{100 * share:.1f}%"></div>'
        for k, share in enumerate(shares)
    ]
    return f"<h4>{escaped(title)}</h4>\n{table(columns, rows, bars)}"


def _rows(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    return [row for line in lines if isinstance(row := json.loads(line), dict)]


# --- blocks --------------------------------------------------------------------------------------


def blocks_of(row: dict[str, Any]) -> list[tuple[int, str]]:
    """Component and text of each block of a sample; none where it says nothing of them."""
    blocks = row.get("blocks")
    return [(int(component), str(words)) for component, words in blocks] if blocks else []


def in_blocks(blocks: Sequence[tuple[int, str]], most: int, colors: int) -> str:
    """A sample with each block in the colour of its component."""
    parts, left = [], most
    for component, words in blocks:
        cut = words[: max(left, 0)]
        left -= len(words)
        if cut:
            parts.append(
                f'<span class="block s{component % colors}" title="component {component}">'
                f"{escaped(cut)}</span>"
            )
    return " ".join([*parts, "…"] if left < 0 else parts)

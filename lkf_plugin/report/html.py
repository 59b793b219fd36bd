"""Runs side by side as one page for a browser: no network, tables without a script.

The parts come from the run folders (``runs``), the commands from ``made_by``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lkf_plugin import __version__
from lkf_plugin.data.corpus import VALID
from lkf_plugin.errors import UserError
from lkf_plugin.files import write_atomically
from lkf_plugin.metrics_file import curve, read_metrics
from lkf_plugin.report.latent_sections import (
    blocks_of,
    components_section,
    few_step_section,
    in_blocks,
    several,
)
from lkf_plugin.report.made_by import likelihood_command, samples_command, training_command
from lkf_plugin.report.markup import escaped, table
from lkf_plugin.report.runs import Run, SideBySide, curves, headline, quality, read_runs
from lkf_plugin.report.svg import COLORS, Axis, Series, chart
from lkf_plugin.report.tables import quality_table, run_table

SHOWN_SAMPLES = 3  # of each evaluation
UNITS = {VALID: "share of samples", "entropy": "nats"}  # of the figures drawn
LONGEST_TEXT = 1500  # characters of a sample
MOST_POINTS = 400  # of a training curve
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


@dataclass
class Commands:
    """Some commands of the page, each with the number that it made.

    Attributes:
        place: unique on the page.
        rows: (number, command).
    """

    place: str
    rows: list[tuple[str, str]] = field(default_factory=list)

    def html(self) -> str:
        """A list to read, with a button to copy where scripts run."""
        parts = []
        for number, (of, command) in enumerate(self.rows):
            name = f"{self.place}-{number}"
            parts.append(
                f'<div class="command"><span class="of">{escaped(of)}</span>'
                f'<code id="{name}">{escaped(command)}</code>'
                f'<button type="button" data-copy="{name}" hidden>copy</button></div>'
            )
        return "\n".join(parts)


def write_html(folder: Path, out: Path) -> Path:
    """Writes the page of all runs under a folder.

    Raises:
        UserError: there is no run, or ``out`` is a folder.
    """
    if out.is_dir():
        raise UserError(f"--html {out} is a folder: name the file of the page.")
    write_atomically(out, page(folder))
    return out


def page(folder: Path) -> str:
    """The page's text.

    Raises:
        UserError: there is no run under the folder.
    """
    side = read_runs(folder)
    here = Path(__file__)
    style, script = (here.with_name(f"page.{kind}").read_text("utf-8") for kind in ("css", "js"))
    sections = [
        ("runs", "Runs", _runs(side)),
        ("training", "Training", _training(side, folder)),
        ("quality", "Quality against steps", _quality(side)),
        ("few-steps", "Likelihood of few steps", few_step_section(side)),
        ("components", "Components", components_section(side, folder)),
        ("samples", "Samples", _samples(side, folder)),
        ("commands", "Commands", _commands(side, folder)),
        ("left-out", "Left out", _left_out(side)),
    ]
    sections = [one for one in sections if one[2]]
    links = "".join(f'<a href="#{name}">{title}</a>' for name, title, _ in sections)
    number = len(side.runs)
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escaped(folder.resolve().name)}: runs side by side</title>",
            f"<style>\n{style}</style></head><body>",
            f"<h1>{escaped(folder.resolve().name)}: runs side by side</h1>",
            f'<p class="quiet">{number} {"run" if number == 1 else "runs"}, lkf {__version__}</p>',
            f"<nav>{links}</nav>",
            *(
                f'<section id="{name}"><h2>{title}</h2>\n{body}\n</section>'
                for name, title, body in sections
            ),
            f"<script>\n{script}</script>",
            "</body></html>",
            "",
        ]
    )


# --- sections ------------------------------------------------------------------------------------


def _runs(side: SideBySide) -> str:
    parts = []
    digests = {one.get("data_digest") for run in side.runs for one in run.likelihoods}
    if len(digests) > 1:
        parts.append(
            '<p class="warn">The runs have different data or tokenizers: val/nll does not compare.'
            "</p>"
        )
    parts.append(table(*run_table(side)))
    parts.append(
        '<p class="quiet">The settings that differ, then likelihoods in nats per token: the lowest '
        "validation of the training, and each evaluation (<code>lkf eval</code>) with its standard "
        "error over sequences. At M &gt; 1 val/nll is the NELBO of the marginal denoiser.</p>"
    )
    return "\n".join(parts)


def _training(side: SideBySide, folder: Path) -> str:
    """val/nll by step, and the training loss."""
    steps = Axis("optimizer step")
    validations, losses = [], []
    for number, run in enumerate(side.runs):
        validations.append(Series(run.name, [(s, v, None) for s, v in run.curve], number))
        points = _losses(_place(folder, run) / "metrics.csv")
        losses.append(Series(run.name, points, number, None))
    charts = [
        chart("Held-out likelihood", validations, steps, Axis("val/nll, nats per token")),
        chart("Training loss", losses, steps, Axis("trainer/loss, nats per token")),
    ]
    return _charts(charts)


def _quality(side: SideBySide) -> str:
    """The headline figure by J, entropy beside it, and both as tables."""
    metric = headline(side)
    if metric is None:
        return ""
    names = [metric]
    known = {name for run in side.runs for one in run.samples for name in quality(one)}
    names += [name for name in ("entropy",) if name in known and name != metric]
    colors = {run.name: number for number, run in enumerate(side.runs)}
    charts, tables = [], []
    for name in names:
        lines = curves(side, name)
        if not lines:
            continue
        marks = {kind: i for i, kind in enumerate(dict.fromkeys(kind for _, kind in lines))}
        series = [
            Series(
                f"{run}, {kind}",
                [(J, one.value, one.se) for J, one in points.items()],
                colors[run],
                marks[kind],
                marks[kind] % 2 == 1,
            )
            for (run, kind), points in lines.items()
        ]
        every = sorted({J for points in lines.values() for J in points})
        steps = Axis("steps J", log=True, ticks=every)
        values = [one.value for points in lines.values() for one in points.values()]
        log = name.startswith("gen_ppl") and all(v > 0 and math.isfinite(v) for v in values)
        label = f"{name}, {UNITS[name]}" if name in UNITS else name
        charts.append(chart(f"{name} against steps", series, steps, Axis(label, log)))
        tables += [f"<h3>{escaped(label)}</h3>", table(*quality_table(side, name))]
    note = (
        '<p class="quiet">A quality figure means something beside the entropy of the same samples: '
        "low perplexity at low entropy is repetition.</p>"
    )
    return "\n".join([_charts(charts), note, *tables])


def _samples(side: SideBySide, folder: Path) -> str:
    parts: list[str] = []
    for number, run in enumerate(side.runs):
        place = _place(folder, run)
        shown: list[str] = []
        for i, path in enumerate(sorted((place / "samples").glob("*.json"))):
            one = json.loads(path.read_text(encoding="utf-8"))
            rows = _lines(path.with_suffix(".jsonl"), SHOWN_SAMPLES)
            if not rows or "sampling_steps" not in one:
                continue
            made = ("made by", samples_command(place, run.settings, one))
            commands = Commands(f"samples-{number}-{i}", [made])
            prompt = f", prompt {one['prompt']}" if one.get("prompt") else ""
            shown += [
                f"<details{' open' if not shown else ''}><summary>{escaped(one.get('policy'))}, "
                f"J = {escaped(one['sampling_steps'])}, seed {escaped(one.get('seed'))}"
                f"{escaped(prompt)}</summary>",
                *(_sample(row, several(run)) for row in rows),
                commands.html(),
                "</details>",
            ]
        if shown:
            parts += [f"<h3>{escaped(run.name)}</h3>", *shown]
    return "\n".join(parts)


def _sample(row: dict[str, Any], several: bool = True) -> str:
    """One sample in its component's colour; with latents per block, each block in its own.

    Args:
        row: of ``samples.jsonl``.
        several: whether the run has more than one component.
    """
    component, said = row.get("component"), str(row.get("text", ""))
    cut = said if len(said) <= LONGEST_TEXT else f"{said[:LONGEST_TEXT]} …"
    known = isinstance(component, int)
    color = f"s{component % COLORS}" if isinstance(component, int) else "none"
    who = f"component {component}" if known else "component not noted"
    shown = escaped(cut)
    if blocks := blocks_of(row):
        who += ", blocks " + " ".join(str(one) for one, _ in blocks)
        shown = in_blocks(blocks, LONGEST_TEXT, COLORS)
    who = f'<div class="who">{who}</div>' if several else ""
    return f'<div class="sample {color}">{who}<div class="text">{shown}</div></div>'


def _commands(side: SideBySide, folder: Path) -> str:
    """What made the runs and their numbers, run by run."""
    parts = []
    for number, run in enumerate(side.runs):
        place, commands = _place(folder, run), Commands(f"run-{number}")
        commands.rows.append(("training", training_command(place)))
        for one in run.likelihoods:
            value = one.get("metrics", {}).get("val/nll")
            shown = f"val/nll {value:.4f}" if isinstance(value, float) else "val/nll"
            commands.rows.append((shown, likelihood_command(place, run.settings, one)))
        for one in run.samples:
            if "sampling_steps" in one:
                shown = f"samples, {one.get('policy')}, J = {one['sampling_steps']}"
                commands.rows.append((shown, samples_command(place, run.settings, one)))
        parts += [f"<h3>{escaped(run.name)}</h3>", commands.html()]
    return "\n".join(parts)


def _left_out(side: SideBySide) -> str:
    rows = [[name, reason] for name, reason in side.left_out.items()]
    return table(["run", "why"], rows) if rows else ""


# --- parts ---------------------------------------------------------------------------------------


def _place(folder: Path, run: Run) -> Path:
    """The run's folder."""
    inside = folder / run.name
    return inside if inside.is_dir() else folder


def _losses(path: Path) -> list[tuple[float, float, None]]:
    """(step, trainer/loss) of a log, thinned to what a picture shows."""
    losses = curve(read_metrics(path).rows, "trainer/loss")
    points = [(float(step), loss, None) for step, loss in losses]
    return points[:: max(len(points) // MOST_POINTS, 1)]


def _lines(path: Path, most: int) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    with path.open(encoding="utf-8") as file:
        lines = [line for _, line in zip(range(most), file, strict=False)]
    return [row for line in lines if isinstance(row := json.loads(line), dict)]


def _charts(charts: Iterable[str]) -> str:
    drawn = [one for one in charts if one]
    return '<div class="charts">\n' + "\n".join(drawn) + "\n</div>" if drawn else ""

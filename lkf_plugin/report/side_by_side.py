"""Runs side by side: the settings that differ, their likelihoods, and quality against J."""

from __future__ import annotations

from pathlib import Path

from lkf_plugin.files import write_atomically
from lkf_plugin.report.few_step import few_step_curves
from lkf_plugin.report.figure import draw
from lkf_plugin.report.runs import headline, read_runs
from lkf_plugin.report.tables import few_step_csv, markdown, quality_csv, runs_csv


def write_side_by_side(folder: Path, out: Path, figures: bool = True) -> list[Path]:
    """Writes ``runs.md``, ``runs.csv``, ``few_step.csv``, ``quality.csv`` and ``runs.png``.

    Returns:
        The files that were written.

    Raises:
        UserError: there is no run.
    """
    side = read_runs(folder)
    texts = {"runs.md": markdown(side), "runs.csv": runs_csv(side)}
    if few_step_curves(side):
        texts["few_step.csv"] = few_step_csv(side)
    if headline(side):
        texts["quality.csv"] = quality_csv(side)
    written = []
    for name, text in texts.items():
        write_atomically(out / name, text)
        written.append(out / name)
    return [*written, draw(side, out / "runs.png")] if figures else written

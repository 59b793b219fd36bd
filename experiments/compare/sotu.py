"""The comparison on State of the Union addresses: generative perplexity, and what stands beside.

A low perplexity may come from dull samples or from one easy component. So every cell holds the
entropies of its samples, and best-of-M cells the share of the favourite component and the pick
without it (see ``evaluate/attribution.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from experiments.compare.fill import Comparison
from experiments.compare.rows import BEST, Row, components
from experiments.compare.store import CellStore, all_cells
from experiments.compare.text_figure import draw_text_comparison
from experiments.compare.text_table import render
from lkf_plugin.errors import UserError
from lkf_plugin.evaluate.attribution import attribution, one_fewer
from lkf_plugin.evaluate.cells import Samples
from lkf_plugin.evaluate.ends import both_ends
from lkf_plugin.evaluate.quality import TextQuality
from lkf_plugin.judge.judge import Judge
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.runs.load import LoadedRun
from lkf_plugin.runs.settings import write_atomically

GRID = (1, 2, 4, 8, 16, 32)
LENGTH = 64  # tokens a text in both experiments: AR's steps
BATCH_SIZE = 32
ENDS = "ends"
PLAIN = "experiment=sotu_baseline"
ROWS: dict[str, Row] = {
    "ar": Row((PLAIN, "baseline=ar")),
    "mdlm": Row((PLAIN, "baseline=mdlm")),
    "sedd": Row((PLAIN, "baseline=sedd")),
    "duo": Row(
        (
            PLAIN,
            "baseline=duo",
            "baseline.curriculum.gamma_min=null",
            "baseline.curriculum.gamma_max=null",
        )
    ),
    "lkf-M1": Row(("experiment=sotu",)),
    "lkf-M8": Row(("experiment=sotu-mixture",), start="lkf-M1"),
}


def compare(
    out: Path,
    names: Sequence[str],
    samples: int,
    passes: int,
    seed: int,
    judge: Judge,
    grid: Sequence[int] = GRID,
    steps: int | None = None,
    rows: dict[str, Row] | None = None,
    length: int = LENGTH,
) -> str:
    """Everything that is missing, row by row, then table and figure.

    Args:
        out: folder of the runs and of the results.
        names: rows to bring up to date.
        samples: a cell.
        passes: draws of noise for the likelihood.
        seed: of training, likelihood and samples.
        judge: of the generative perplexity.
        grid: values of J.
        steps: of training, instead of the recipes'.
        rows: all rows; those of this corpus by default.
        length: tokens a text.

    Returns:
        The table of all rows that have been measured.

    Raises:
        UserError: numbers below one, or what training and evaluation raise.
    """
    for flag, numbers in (("samples", [samples]), ("passes", [passes]), ("grid", grid)):
        if min(numbers) < 1:
            raise UserError(f"--{flag} {min(numbers)} must be at least 1.")
    rows = ROWS if rows is None else rows
    judged_by = f"{judge.label} {str(judge.dtype).removeprefix('torch.')}"

    def quality(run: LoadedRun) -> TextQuality:
        return TextQuality(run.prepared.tokenizer, judge, length, self_bleu_subset=0)

    def measured(run: LoadedRun, row: str, decode: str, J: int, drawn: Samples) -> dict[str, Any]:
        return measure(quality(run), row, decode, J, drawn)

    def of_row(row: str, decode: str) -> Sequence[int]:
        return (length,) if row == "ar" else sorted(set(grid))

    comparison = Comparison(
        out, rows, of_row, measured, samples, passes, seed, BATCH_SIZE, steps, judged_by
    )
    store = CellStore(out / "cells.json")
    for name in names:
        run = comparison.fill(store, name)
        ends = store.entry(ENDS, comparison.key(run.prepared.digest))
        if "real" not in ends:
            for end, found in both_ends(run, quality(run), samples, seed).items():
                ends[end] = _plain(found)
            store.save()
    entries, ends = store.known(rows), store.entries[ENDS]
    table = render(entries, rows, ends, judge.metric, judged_by)
    write_atomically(out / "table.md", table)
    draw_text_comparison(out / "compare.png", all_cells(entries), ends, judge.metric)
    return table


def measure(quality: TextQuality, row: str, decode: str, J: int, drawn: Samples) -> dict[str, Any]:
    """A cell: perplexity and diversity; under ``best`` what a component's absence changes.

    Solo figures of the components are left out: they would cost the judge M times as many texts.
    """
    found = quality.measure(drawn.ids_SL)
    M = components(row)
    if decode == BEST and M is not None:
        found |= one_fewer(drawn, quality) if M == 1 else attribution(drawn, quality, judged=0)
    return {
        "row": row,
        "decode": decode,
        "J": J,
        "samples": len(drawn.ids_SL),
        "steps_calls": drawn.steps_calls,
        "network_calls": drawn.network_calls,
        "metrics": _plain(found),
    }


def _plain(found: dict[str, Estimate]) -> dict[str, Any]:
    return {name: asdict(estimate) for name, estimate in sorted(found.items())}

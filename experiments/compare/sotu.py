"""The comparison on State of the Union addresses: generative perplexity, and what stands beside.

A low perplexity may come from dull samples or from one easy component. So every cell holds the
entropies of its samples, and best-of-M cells the share of the favourite component and the pick
without it (see ``evaluate/attribution.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.compare.comparison import Comparison
from experiments.compare.methods import Row
from experiments.compare.text_figure import draw_text_comparison
from experiments.compare.text_table import END_NAMES, render
from experiments.recipes import SOTU
from lkf_plugin.errors import UserError
from lkf_plugin.evaluate.identity import beside_of
from lkf_plugin.evaluate.quality import TextQuality
from lkf_plugin.evaluate.reference_text import both_ends
from lkf_plugin.evaluate.run_records import ENDS, Cell, RunRecords
from lkf_plugin.files import write_atomically
from lkf_plugin.judge.judge import Judge
from lkf_plugin.methods.method import uses_steps
from lkf_plugin.records.record import Record
from lkf_plugin.runs.load import LoadedRun

GRID = (1, 2, 4, 8, 16, 32)
LENGTH = 64  # tokens per text in both experiments: AR's steps
BATCH_SIZE = 32
ROWS: dict[str, Row] = {
    name: Row(SOTU[name].overrides, start=SOTU[name].start)
    for name in ("ar", "mdlm", "sedd", "duo", "lkf-M1", "lkf-M8")
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
        length: tokens per text.

    Returns:
        The table of all rows that have been measured.

    Raises:
        UserError: numbers below one, or what training and evaluation raise.
    """
    for flag, numbers in (("samples", [samples]), ("passes", [passes]), ("grid", grid)):
        if min(numbers) < 1:
            raise UserError(f"--{flag} {min(numbers)} must be at least 1.")
    rows = ROWS if rows is None else rows

    def quality(run: LoadedRun) -> TextQuality:
        return TextQuality(run.prepared.tokenizer, judge, length, self_bleu_subset=0)

    def of_row(row: str, decode: str) -> Sequence[int]:
        return (length,) if not uses_steps(row) else sorted(set(grid))

    comparison = Comparison(
        out, rows, of_row, quality, True, samples, passes, seed, BATCH_SIZE, steps
    )
    filled = {}
    for name in names:
        run, filled[name] = comparison.fill(name)
        ends = ends_of(comparison, run, quality(run))
    entries = comparison.entries(filled)
    table = render(entries, rows, ends, judge.metric)
    write_atomically(out / "table.md", table)
    draw_text_comparison(out / "compare.png", entries, ends, judge.metric)
    return table


def ends_of(comparison: Comparison, run: LoadedRun, quality: TextQuality) -> dict[str, Record]:
    """Records of held-out text and of the same with shuffled words, measured once per corpus."""
    records = RunRecords(run, comparison.folder, comparison.seed, of_data=True)
    settings = {
        "length": int(run.config.model.length),
        "samples": comparison.samples,
        "seed": comparison.seed,
        "judge": quality.judged_by,
        "eval": beside_of(run.config, quality.self_bleu_subset),
    }
    cells = {end: Cell(ENDS, end, {**settings, "end": end}) for end in END_NAMES}
    known = {end: record for end, cell in cells.items() if (record := records.find(cell))}
    if len(known) == len(cells):
        return known
    estimates = both_ends(run, quality, comparison.samples, comparison.seed)
    return {end: records.write(cell, estimates[end]) for end, cell in cells.items()}

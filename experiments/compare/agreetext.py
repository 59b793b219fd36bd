"""The comparison on AgreeText: share of valid texts, and how many different ones there are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from experiments.compare.comparison import Comparison
from experiments.compare.entries import Entry, all_cells
from experiments.compare.figure import draw_comparison
from experiments.compare.methods import BEST, OWN, Row
from experiments.compare.tables import by_steps, calls, sizes
from experiments.compare.targets import AR_STEPS, CLAUSES, render_targets
from experiments.recipes import AGREETEXT
from lkf_plugin.corpora import agreetext
from lkf_plugin.data.agreetext import AgreeTextCorpus
from lkf_plugin.data.corpus import VALID
from lkf_plugin.evaluate.quality import RuleQuality
from lkf_plugin.files import write_atomically
from lkf_plugin.methods.method import is_exact, uses_steps
from lkf_plugin.records.markdown import markdown_table
from lkf_plugin.records.record import Record
from lkf_plugin.runs.load import LoadedRun

PERFECT = "_of_as_many_perfect"
STEPS_J = (1, 2, 4, 8, 16, 32)
# validation falls on the last step, so that the best checkpoint may be the finished one
LATENT = ("trainer.max_steps=900", "trainer.val_check_interval=450")
ROWS: dict[str, Row] = {
    "ar": Row((*AGREETEXT["ar"].overrides, "trainer.max_steps=600"), (OWN,)),
    "mdlm": Row(AGREETEXT["mdlm"].overrides),
    "sedd": Row(AGREETEXT["sedd"].overrides),
    "duo": Row((*AGREETEXT["duo"].overrides, "trainer.max_steps=1500")),
    "lkf-M1": Row((*AGREETEXT["lkf-M1"].overrides, *LATENT), (OWN,)),
    "lkf-M4": Row((*AGREETEXT["lkf-M4"].overrides, *LATENT)),
    "lkf-M8": Row((*AGREETEXT["lkf-M8"].overrides, *LATENT)),
}


def compare(
    out: Path, names: list[str], samples: int, passes: int, seed: int, perturb: bool = False
) -> str:
    """Everything that is missing, row by row, then table and figure; returns table and targets."""
    comparison = Comparison(out, ROWS, grid, quality, False, samples, passes, seed, perturb=perturb)
    entries = comparison.entries({name: comparison.fill(name)[1] for name in names})
    table = render(entries)
    write_atomically(out / "table.md", table)
    draw_comparison(out / "compare.png", entries, CLAUSES)
    start = f"seed {seed}" + (", perturbed" if perturb else "")
    return f"{table}\nWhat must hold on any machine:\n\n{render_targets({start: entries})}"


def quality(run: LoadedRun) -> RuleQuality:
    """The grammar."""
    length = int(run.config.model.length)
    return RuleQuality(run.prepared.tokenizer, length, AgreeTextCorpus.rule, 0)


def grid(row: str, decode: str) -> tuple[int, ...]:
    """AR has one cost, a call per token; eight chains are worth it at few steps only."""
    if not uses_steps(row):
        return (AR_STEPS,)
    return STEPS_J[:4] if decode == BEST else STEPS_J


def render(entries: Mapping[str, Entry]) -> str:
    """Markdown tables: likelihoods, valid share (calls) by J, and entropies."""
    best = agreetext.nelbo_optimum(CLAUSES)
    losses, valid = [], []
    for row, entry in entries.items():
        bound = "exact" if is_exact(row) else "NELBO"
        nelbo = entry.nelbo.metrics["nelbo"]
        nats = f"{bound} {nelbo.value:.4f} ± {nelbo.se:.4f}"
        losses.append([row, *sizes(entry), nats, f"{nelbo.value - best:+.4f}"])
    columns = [f"J={J}" for J in STEPS_J]
    for M in (1, 4, 8):
        exact = [agreetext.few_step_validity(J, CLAUSES, M, M > 1) for J in STEPS_J]
        valid.append([f"closed form, M={M}", *(f"{value:.3f}" for value in exact)])
    valid += by_steps(entries, ROWS, STEPS_J, _valid)
    cells = all_cells(entries)
    worst = max(cell.metrics[VALID].se or 0.0 for cell in cells)
    counts = " or ".join(str(n) for n in sorted({cell.samples or 0 for cell in cells}))
    parts = [
        f"AgreeText, C = {CLAUSES}, H / L = {best:.4f} nats per token.",
        markdown_table(["row", "weights", "steps", "NELBO, nats per token", "minus H / L"], losses),
        markdown_table(
            ["valid share (method's calls / network calls per sample)", *columns], valid
        ),
        markdown_table(
            ["configuration entropy, nats (perfect texts)", *columns],
            by_steps(entries, ROWS, STEPS_J, _entropy),
        ),
        f"{counts} samples per cell; standard errors are at most {worst:.3f}.",
    ]
    return "\n\n".join(parts) + "\n"


def _valid(cell: Record) -> str:
    return f"{cell.value(VALID):.3f} {calls(cell)}"


def _entropy(cell: Record) -> str:
    """Entropy of (topic, numbers) among the valid texts, beside that of as many perfect ones."""
    entropy, perfect = (cell.value(f"configuration_entropy{end}") for end in ("", PERFECT))
    return "" if entropy is None else f"{entropy:.2f} ({perfect:.2f})"

"""The comparison on AgreeText: share of valid texts, and how many different ones there are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from experiments.compare.figure import draw_comparison
from experiments.compare.fill import Comparison
from experiments.compare.rows import BEST, OWN, Row
from experiments.compare.store import CellStore, Entry, all_cells
from experiments.compare.tables import by_steps, calls, header, line
from lkf_plugin.corpora import agreetext
from lkf_plugin.corpora.plug_in import expected_plug_in_entropy
from lkf_plugin.evaluate.cells import Samples
from lkf_plugin.runs.load import LoadedRun
from lkf_plugin.runs.settings import write_atomically

STEPS_J = (1, 2, 4, 8, 16, 32)
CLAUSES = 4
# validation falls on the last step, so that the best checkpoint may be the finished one
LATENT = ("experiment=demo", "trainer.max_steps=900", "trainer.val_check_interval=450")
PLAIN = "experiment=agreetext_baseline"
ROWS: dict[str, Row] = {
    "ar": Row((PLAIN, "baseline=ar", "trainer.max_steps=600"), (OWN,)),
    "mdlm": Row((PLAIN, "baseline=mdlm")),
    "sedd": Row((PLAIN, "baseline=sedd")),
    "duo": Row(
        (
            PLAIN,
            "baseline=duo",
            "trainer.max_steps=1500",
            "baseline.curriculum.gamma_min=null",
            "baseline.curriculum.gamma_max=null",
        )
    ),
    "lkf-M1": Row((*LATENT, "model.num_components=1"), (OWN,)),
    "lkf-M4": Row((*LATENT, "model.num_components=4")),
    "lkf-M8": Row((*LATENT, "model.num_components=8")),
}


@dataclass(frozen=True)
class Cell:
    """One figure of the table: a row, how it was sampled, and what came out."""

    row: str
    decode: str
    J: int
    valid: float
    valid_se: float
    configuration_entropy: float
    samples: int
    steps_calls: float
    network_calls: float


def compare(out: Path, names: list[str], samples: int, passes: int, seed: int) -> str:
    """Everything that is missing, row by row, then table and figure; returns the table."""
    comparison = Comparison(out, ROWS, grid, _cell, samples, passes, seed)
    store = CellStore(out / "cells.json")
    for name in names:
        comparison.fill(store, name)
    entries = store.known(ROWS)
    table = render(entries, samples)
    write_atomically(out / "table.md", table)
    draw_comparison(out / "compare.png", all_cells(entries), CLAUSES)
    return table


def grid(row: str, decode: str) -> tuple[int, ...]:
    """AR has one cost, a call a token; eight chains are worth it at few steps only."""
    if row == "ar":
        return (CLAUSES * agreetext.CLAUSE_LENGTH,)
    return STEPS_J[:4] if decode == BEST else STEPS_J


def _cell(run: LoadedRun, row: str, decode: str, J: int, drawn: Samples) -> dict[str, Any]:
    return asdict(measure(row, decode, J, drawn))


def measure(row: str, decode: str, J: int, drawn: Samples) -> Cell:
    """Valid share with its standard error, and how diverse the valid texts are."""
    good = agreetext.valid(drawn.ids_SL).double()
    rate, n = good.mean().item(), good.numel()
    entropy = agreetext.configuration_entropy(drawn.ids_SL).plug_in if rate > 0 else 0.0
    error = math.sqrt(rate * (1 - rate) / n)
    return Cell(row, decode, J, rate, error, entropy, n, drawn.steps_calls, drawn.network_calls)


def render(entries: Mapping[str, Entry], samples: int) -> str:
    """Markdown tables: likelihoods, valid share (calls) by J, and entropies."""
    best = agreetext.nelbo_optimum(CLAUSES)
    lines = [f"AgreeText, C = {CLAUSES}, H / L = {best:.4f} nats a token.", ""]
    lines += header(["row", "weights", "steps", "NELBO, nats a token", "minus H / L"])
    for row, entry in entries.items():
        bound = "exact" if row == "ar" else "NELBO"
        nats = f"{bound} {entry['nll']:.4f} ± {entry['nll_se']:.4f}"
        sizes = [f"{entry['weights']:,}", str(entry["step"])]
        lines.append(line([row, *sizes, nats, f"{entry['nll'] - best:+.4f}"]))
    columns = [f"J={J}" for J in STEPS_J]
    lines += ["", *header(["valid share (method's calls / network calls a sample)", *columns])]
    for M in (1, 4, 8):
        exact = [agreetext.few_step_validity(J, CLAUSES, M, M > 1) for J in STEPS_J]
        lines.append(line([f"closed form, M={M}", *(f"{value:.3f}" for value in exact)]))
    lines += by_steps(entries, ROWS, STEPS_J, lambda cell: f"{cell['valid']:.3f} {calls(cell)}")
    lines += ["", *header(["configuration entropy, nats (perfect texts)", *columns])]
    lines += by_steps(entries, ROWS, STEPS_J, _entropy)
    errors = [cell["valid_se"] for entry in entries.values() for cell in entry["cells"]]
    lines += ["", f"{samples} samples a cell; standard errors are at most {max(errors):.3f}."]
    return "\n".join(lines) + "\n"


def _entropy(cell: Mapping[str, Any]) -> str:
    """Entropy of (topic, numbers) among the valid texts, beside that of as many perfect ones."""
    count = round(cell["valid"] * cell["samples"])
    if not count:
        return ""
    perfect = expected_plug_in_entropy(count, agreetext.configurations(CLAUSES))
    return f"{cell['configuration_entropy']:.2f} ({perfect:.2f})"

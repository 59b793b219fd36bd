"""Table main: every method over J, likelihood, entropy and information."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from experiments.tables import paper_numbers as paper
from experiments.tables.advantages import best_of_n, is_flagged
from experiments.tables.lookup import Lookup, model_of
from experiments.tables.row_entries import (
    NELBO,
    SINGLE,
    at,
    grid_of,
    last_of,
    paper_corpus,
    record_at,
)
from experiments.tables.table import Entry, Table
from lkf_plugin.evaluate.run_records import INFORMATION, LIKELIHOOD, OWN, SAMPLES
from lkf_plugin.methods.method import uses_steps

# label -> (method, M, row, calls)
PLACES: dict[str, tuple[str, int, str, str]] = {
    "MDLM": ("mdlm", 1, OWN, "J"),
    "MDLM, best-of-8": ("mdlm", 1, best_of_n(8), "8(J+T)"),
    "SEDD": ("sedd", 1, OWN, "J"),
    "SDTT teacher (7 rounds)": ("sdtt-r7", 1, OWN, "J"),
    "Di4C, best r4": ("di4c-r4", 1, OWN, "J"),
    "ReDi, best rect3": ("redi-r3", 1, OWN, "J"),
    "AR (128 calls)": ("ar", 1, OWN, "L"),
    "LKF M=1, best-of-8": ("lkf", 1, best_of_n(8), "8(J+T)"),
    "LKF M=1": ("lkf", 1, SINGLE, "J"),
    "LKF M=4": ("lkf", 4, NELBO, "4(J+T)"),
    "LKF M=8": ("lkf", 8, NELBO, "8(J+T)"),
}
NO_NUMBERS: tuple[None, ...] = (None,) * len(paper.J_GRID)
NAMES = {"sdtt": "SDTT", "di4c": "Di4C", "redi": "ReDi", "dcd": "DCD", "sdtt_lkf": "SDTT of LKF"}


class MainRow(NamedTuple):
    """A row, and where its records are.

    Attributes:
        label: in tables.
        model: method with its round.
        M, row: components, and how it is decoded.
        calls: in the method's own words.
        numbers: the label of the paper's row beside it, or None.
    """

    label: str
    model: str
    M: int
    row: str
    calls: str
    numbers: str | None = None


def main_rows(lookup: Lookup) -> list[MainRow]:
    """The paper's rows, and what else was measured: other rounds, other methods.

    Where the paper's round was not reached, the last one stands beside the paper's number, and
    both are named.
    """
    rows = []
    for label in paper.MAIN[paper_corpus(lookup)]:
        model, M, row, calls = PLACES[label]
        method, _, number = model.partition("-r")
        numbers = lookup.rounds(method) if number else []
        for one in numbers:
            same = one == (int(number) if int(number) in numbers else max(numbers))
            name = f"{NAMES[method]}, round {one}"
            beside = f" (paper: {label})" if same and one != int(number) else ""
            rows.append(MainRow(name + beside, f"{method}-r{one}", M, row, calls,
                                label if same else None))  # fmt: skip
        if not numbers:
            rows.append(MainRow(label, model, M, row, calls, label))
    rows += [
        MainRow(f"LKF M={M}, one chain", "lkf", M, SINGLE, "J")
        for M in lookup.components()
        if any(lookup.find(M, SINGLE, J) for J in lookup.steps())
    ]
    known = {(row.model, row.M, row.row) for row in rows}
    return rows + _measured_besides(lookup, known)


def main(lookup: Lookup) -> Table:
    """Table main: every method over J, likelihood, entropy and information."""
    grid, last = grid_of(lookup), last_of(lookup)
    columns = ["ELBO-PPL", *(f"J={J}" for J in grid), f"H@{last}", "I(k)"]
    table = Table("main", "Methods over the number of steps", columns)
    for row in main_rows(lookup):
        entries = _entries(lookup, row, grid)
        table.rows.append((_length_in(row.label, entries), row.calls, entries))
    table.notes.append(
        "ELBO-PPL is exp of the marginal NELBO a token, as MDLM counts it, of the row's own model "
        "over all times; AR's is exact. A distilled model's is its own and not its teacher's, and "
        "does not bound what few-step samples follow: table nats does, with the errors. Behind a "
        "figure: c, network calls a sample as run; s, trainings, whose mean it is, ± their "
        "standard deviation."
    )
    return table


def _entries(lookup: Lookup, row: MainRow, grid: Sequence[int]) -> list[Entry]:
    """ELBO-PPL, the figure over J, H at the last J and I(k) of a row."""
    numbers: Sequence[float | None] = NO_NUMBERS
    elbo = entropy = information = None
    if row.numbers is not None:
        corpus = paper_corpus(lookup)
        numbers = paper.MAIN[corpus][row.numbers]
        elbo, entropy, information = paper.MAIN_REST[corpus][row.numbers]
    once = row.row in (NELBO, SINGLE, OWN)  # one likelihood a model, not a decode
    likelihood = lookup.find(row.M, LIKELIHOOD, None, row.model) if once else None
    at_last = record_at(lookup, row.M, row.row, max(grid), grid, row.model)
    latent = next(
        (
            record
            for record in lookup.records
            if (model_of(record), record.num_components) == (row.model, row.M)
            and record.kind == INFORMATION
        ),
        None,
    )
    figures = []
    for J in grid:
        record = record_at(lookup, row.M, row.row, J, grid, row.model)
        entry = lookup.repeated(record, None, at(numbers, J))
        figures.append(dataclasses.replace(entry, flagged=is_flagged(lookup, record)))
    return [
        lookup.repeated(likelihood, "elbo_ppl", elbo),
        *figures,
        lookup.repeated(at_last, "entropy", entropy),
        lookup.repeated(latent, "information", information),
    ]


def _length_in(label: str, entries: Sequence[Entry]) -> str:
    """The label with the calls that were measured in place of the paper's 128."""
    spent = [e.record.value("calls") for e in entries if e.record is not None]
    calls = {one for one in spent if one is not None}
    return label.replace("128 calls", f"{calls.pop():g} calls") if calls else label


def _measured_besides(lookup: Lookup, known: set[tuple[str, int, str]]) -> list[MainRow]:
    """Other methods' records for which the paper has no row."""
    rows: dict[tuple[str, int, str], MainRow] = {}
    for record in lookup.records:
        model, method, M = model_of(record), record.method, record.num_components
        plain = record.kind != SAMPLES
        row = (OWN if M == 1 else SINGLE) if plain else record.row
        if method == "lkf" or (model, M, row) in known:
            continue
        name = NAMES.get(method, method.upper())
        label = name if model == method else f"{name}, round {model.rpartition('-r')[2]}"
        label += f", M={M}" if M > 1 else ""
        calls = "J" if uses_steps(method) else "L"
        if row not in (OWN, SINGLE):
            n = record.setting("decode.num_candidates") if row.startswith("best_of_n") else M
            named = {f"best_of_n.n{n}.nelbo": f", best-of-{n}", NELBO: f", best-of-{n}"}
            label += named.get(row, f", {row}")
            calls = f"{n}(J+T)" if uses_steps(method) else f"{n}L"
        rows[model, M, row] = MainRow(label, model, M, row, calls)
    return [rows[key] for key in sorted(rows)]

"""Table main: every method over J, likelihood, entropy and information."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.tables import paper_numbers as paper
from experiments.tables.advantages import best_of_n
from experiments.tables.lookup import Lookup
from experiments.tables.row_entries import (
    NELBO,
    SINGLE,
    found,
    grid_of,
    last_of,
    paper_corpus,
    plain,
    row_entries,
)
from experiments.tables.table import Entry, Table, is_likelihood
from lkf_plugin.evaluate.run_records import INFORMATION, LIKELIHOOD, OWN
from lkf_plugin.methods.method import uses_steps

# label -> (method, M, row, calls)
PLACES: dict[str, tuple[str, int, str, str]] = {
    "MDLM": ("mdlm", 1, OWN, "J"),
    "MDLM, best-of-8": ("mdlm", 1, best_of_n(8), "8(J+T)"),
    "SEDD": ("sedd", 1, OWN, "J"),
    "SDTT teacher (7 rounds)": ("sdtt", 1, OWN, "J"),
    "Di4C, best r4": ("di4c", 1, OWN, "J"),
    "ReDi, best rect3": ("redi", 1, OWN, "J"),
    "AR (128 calls)": ("ar", 1, OWN, "L"),
    "LKF M=1, best-of-8": ("lkf", 1, best_of_n(8), "8(J+T)"),
    "LKF M=1": ("lkf", 1, SINGLE, "J"),
    "LKF M=4": ("lkf", 4, NELBO, "4(J+T)"),
    "LKF M=8": ("lkf", 8, NELBO, "8(J+T)"),
}


def main(lookup: Lookup) -> Table:
    """Table main: every method over J, likelihood, entropy and information."""
    grid, last = grid_of(lookup), last_of(lookup)
    columns = ["ELBO-PPL", *(f"J={J}" for J in grid), f"H@{last}", "I(k)"]
    table = Table("main", "Methods over the number of steps", columns)
    corpus = paper_corpus(lookup)
    nothing: tuple[None, ...] = (None,) * len(paper.J_GRID)
    for label, numbers in paper.MAIN[corpus].items():
        model, M, row, calls = PLACES[label]
        rest = paper.MAIN_REST[corpus][label]
        entries = _entries(lookup, (model, M, row), grid, numbers, rest)
        table.rows.append((_length_in(label, entries), calls, entries))
    known = {(PLACES[label][0], PLACES[label][2]) for label in paper.MAIN[corpus]}
    for label, model, row, calls in _measured_besides(lookup, known):
        entries = _entries(lookup, (model, 1, row), grid, nothing, (None, None, None))
        table.rows.append((label, calls, entries))
    table.notes.append(
        "ELBO-PPL is exp of the marginal NELBO a token, as MDLM counts it; AR's is exact."
    )
    return table


def _entries(
    lookup: Lookup,
    place: tuple[str, int, str],
    grid: Sequence[int],
    numbers: Sequence[float | None],
    rest: tuple[float | None, float | None, float | None],
) -> list[Entry]:
    """ELBO-PPL, the figure over J, H at the last J and I(k) of a (method, M, row)."""
    model, M, row = place
    elbo, entropy, information = rest
    once = row in (NELBO, SINGLE, OWN)  # one likelihood a model, not a decode
    likelihood = lookup.find(M, LIKELIHOOD, None, model) if once else None
    at_last = found(lookup, M, row, max(grid), grid, model)
    latent = next(
        (
            record
            for record in lookup.records
            if (record.method, record.num_components) == (model, M) and record.kind == INFORMATION
        ),
        None,
    )
    return [
        plain(lookup, likelihood, "elbo_ppl", elbo),
        *row_entries(lookup, M, row, grid, numbers, model=model),
        plain(lookup, at_last, "entropy", entropy),
        plain(lookup, latent, "information", information),
    ]


def _length_in(label: str, entries: Sequence[Entry]) -> str:
    """The label with the calls that were measured in place of the paper's 128."""
    spent = [e.record.value("calls") for e in entries if e.record is not None]
    calls = {one for one in spent if one is not None}
    return label.replace("128 calls", f"{calls.pop():g} calls") if calls else label


def _measured_besides(
    lookup: Lookup, known: set[tuple[str, str]]
) -> list[tuple[str, str, str, str]]:
    """(label, method, row, calls) of other methods' records for which the paper has no row."""
    rows: dict[tuple[str, str], tuple[str, str, str, str]] = {}
    for record in lookup.records:
        model = record.method
        row = OWN if is_likelihood(record) else record.row
        if model == "lkf" or (model, row) in known:
            continue
        label, calls = model.upper(), "J" if uses_steps(model) else "L"
        if row != OWN:
            n = record.setting("decode.num_candidates")
            label += f", best-of-{n}" if row == f"best_of_n.n{n}.nelbo" else f", {row}"
            calls = f"{n}(J+T)" if uses_steps(model) else f"{n}L"
        rows[model, row] = (label, model, row, calls)
    return [rows[key] for key in sorted(rows)]

"""What the rows of table main were trained for, and bounds on what their samplers follow."""

from __future__ import annotations

from experiments.tables.lookup import Lookup
from experiments.tables.main_table import MainRow, main_rows
from experiments.tables.row_entries import NELBO, SINGLE, grid_of, record_at
from experiments.tables.table import Entry, Table
from lkf_plugin.evaluate.run_records import FEW_STEP, LIKELIHOOD, OWN
from lkf_plugin.methods.method import METHODS
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.record import Record

FROZEN = "nll_frozen"


def nats(lookup: Lookup) -> Table:
    """Table nats: likelihood over all times, and of the sampler of J steps, nats a token."""
    grid = grid_of(lookup)
    columns = ["NELBO", *(f"NLL@{J}" for J in grid)]
    table = Table("nats", "Likelihood of held-out text, nats a token", columns)
    errors: dict[str, list[float]] = {"NELBO": [], "NLL@J": []}
    for row in main_rows(lookup):
        if row.row not in (OWN, SINGLE, NELBO):
            continue
        whole = lookup.find(row.M, LIKELIHOOD, None, row.model)
        few = lookup.find(row.M, FEW_STEP, None, row.model)
        if whole is None and few is None:
            continue
        held = row.M > 1  # a chain of a mixture keeps its component
        if held and (row.row == SINGLE) == (row.model == "lkf"):
            continue  # a mixture is one line, whatever chooses among its chains
        bounds = [lookup.repeated(few, f"{FROZEN if held else 'nll'}@{J}") for J in grid]
        label = f"LKF M={row.M}, a component kept" if row.model == "lkf" and held else _name(row)
        table.rows.append((label, _of(row.model), [lookup.repeated(whole, "nelbo"), *bounds]))
        for kind, record in zip(errors, (whole, few), strict=True):
            errors[kind] += [] if record is None else [_largest_error(record)]
    shown = " and ".join(
        f"{min(own):.3f} to {max(own):.3f} for {kind}" for kind, own in errors.items() if own
    )
    table.notes.append(
        "Every row is measured on the same texts, and on the same draws of times as other rows of "
        "its estimator, so that trainings deviate by less than a figure is sure: standard errors "
        f"over texts are {shown}."
    )
    table.notes.append(
        "NLL@J bounds the likelihood of the row's own sampler of J steps from above, where such a "
        "bound is known: samplers that reveal masks. Lower is better; it needs no judge, and dull "
        "samples do not lower it. For a distilled row all figures are the student's."
    )
    return table


def _largest_error(record: Record) -> float:
    """Of the nats in a record, over texts."""
    nats = [one for name, one in record.metrics.items() if name.startswith(("nelbo", "nll"))]
    return max((one.se or 0.0 for one in nats), default=0.0)


def _name(row: MainRow) -> str:
    """The row without the paper's number of calls, which is for another length."""
    return row.label.partition(" (128 calls)")[0]


def _of(model: str) -> str:
    """Whose likelihood it is, for the column of the costs."""
    method = model.partition("-r")[0]
    if method in METHODS and METHODS[method].exact:
        return "exact"
    return "student's own" if model != method else "bound"


def cost(lookup: Lookup) -> Table:
    """Table cost: what was spent before a row could be sampled."""
    columns = ["steps", "teacher calls", "of J steps", "trainings"]
    table = Table("cost", "What the rows of table main were trained for", columns)
    grid, seen = grid_of(lookup), set()
    for row in main_rows(lookup):
        at_last = record_at(lookup, row.M, row.row, max(grid), grid, row.model)
        record = at_last or lookup.find(row.M, LIKELIHOOD, None, row.model)
        if record is None or (row.model, row.M) in seen:
            continue
        seen.add((row.model, row.M))
        spent = [_label(record, key) for key in ("trained_steps", "teacher_calls")]
        made_for = _label(record, "trained_for_steps")
        repeated = Entry(Estimate(float(lookup.repeated(record).seeds), 0.0), record=record)
        table.rows.append((_name(row), "", [*spent, made_for, repeated]))
    table.notes.append(
        "Steps are the row's own, all rounds up to it; those of its teacher, or of the model that "
        "it started from, come on top. A teacher's call is one evaluation for a batch; ReDi's make "
        "its pairs. Of J steps: what a student's last round was trained for."
    )
    return table


def coupling(lookup: Lookup) -> Table:
    """Table coupling: what dependence between words is left once a noise is given, nats."""
    columns = ["TC", "TC, texts of all noises", "corpus", "ReDi's own, of 8", "valid"]
    table = Table("coupling", "Conditional total correlation of couplings on AgreeText", columns)
    names = ("tc", "tc_pooled", "tc_corpus", "tc_of_peers", "coupled_valid")
    rows = {row.model: row.label for row in main_rows(lookup) if row.row == OWN}
    for model, label in rows.items():
        record = lookup.find(1, "coupling", None, model)
        if record is not None:
            table.rows.append((label, "", [lookup.repeated(record, name) for name in names]))
    table.notes.append(
        "Each row's model makes texts of a few noises by a long chain: the coupling that ReDi's "
        "next round is trained on. TC is measured on the features that words show, where it is "
        "exact on the corpus, one noise at a time and over all together."
    )
    return table


def _label(record: Record, key: str) -> Entry:
    value = record.labels.get(key)
    if value is None:
        return Entry()
    return Entry(Estimate(float(str(value)), 0.0), record=record)

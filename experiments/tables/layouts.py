"""The paper's decoding tables: which record stands where, and the paper's number beside it.

Each function takes the records of one corpus. Corpora that the paper has not get its LM1B numbers
beside, for the shape only.
"""

from __future__ import annotations

from collections.abc import Callable

from experiments.tables import paper_numbers as paper
from experiments.tables.advantages import (
    advantages,
    best_of_n,
    control,
    gain_over,
    is_flagged,
)
from experiments.tables.lookup import Lookup
from experiments.tables.main_table import main
from experiments.tables.row_entries import (
    EVIDENCE,
    NELBO,
    SINGLE,
    at,
    grid_of,
    last_of,
    paper_corpus,
    plain,
    row_entries,
    split,
)
from experiments.tables.table import Entry, Table
from experiments.tables.training_tables import cost, coupling, nats
from lkf_plugin.evaluate.run_records import OWN
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.record import Record

MIXTURES = (4, 8)
CALIBRATED = "calibrated.nelbo.theta0.1"
J_LAST = 32
MATCHED = "matched"


def decode(lookup: Lookup) -> Table:
    """Table decode: every policy at one J."""
    last = last_of(lookup)
    table = Table("decode", f"Every decoding policy at J={last}", [f"M={M}" for M in MIXTURES])
    numbers = paper.DECODE if paper_corpus(lookup) == paper.LM1B else {}
    rows: dict[str, tuple[Callable[[int], str], str]] = {
        "M components, independent noise | NELBO": (lambda M: NELBO, "M(J+T)"),
        "M components, shared noise | NELBO": (lambda M: f"{NELBO}.shared", "M(J+T)"),
        "M components, shared noise | evidence": (lambda M: f"{EVIDENCE}.shared", "MJ"),
        "one component, M noise streams | NELBO": (best_of_n, "M(J+T)"),
        "M components, independent noise | random pick": (lambda M: "best_of_m.random", "J"),
        "M components, halving | evidence": (lambda M: "halving.shared", "2J / 3J"),
        "one component (commit-M) | none": (lambda M: SINGLE, "J"),
        "M components, independent noise | softmax of NELBO (ours)": (
            lambda M: "best_of_m.softmax.nelbo", "M(J+T)",
        ),
        "M components, independent noise | centred NELBO (ours)": (
            lambda M: "best_of_m.centred.nelbo", "M(J+T)",
        ),
        "one calibrated component (ours) | none": (
            lambda M: CALIBRATED, "J",
        ),
    }  # fmt: skip
    for label, (row_of_M, calls) in rows.items():
        entries = []
        for M in MIXTURES:
            record = lookup.find(M, row_of_M(M), last)
            number, entropy = numbers.get(label, {}).get(M, (None, None))
            if last != J_LAST:
                number, entropy = None, None
            entries.append(lookup.entry(record, number, entropy, is_flagged(lookup, record)))
        table.rows.append((label, calls, entries))
    return table


def bestofn(lookup: Lookup) -> Table:
    """Table bestofn: the same budget with and without the mixture."""
    grid = grid_of(lookup)
    table = Table("bestofn", "Removing the mixture at matched budget", [f"J={J}" for J in grid])
    is_lm1b = paper_corpus(lookup) == paper.LM1B
    rows = (
        ("MDLM, one chain", "mdlm", 1, OWN, "J"),
        ("LKF M=1, one chain", "lkf", 1, SINGLE, "J"),
        ("LKF M=8, one component", "lkf", 8, SINGLE, "J"),
        ("MDLM, 8 noise draws", "mdlm", 1, best_of_n(8), "8(J+T)"),
        ("LKF M=1, 8 noise draws", "lkf", 1, best_of_n(8), "8(J+T)"),
        ("LKF M=8, 8 components", "lkf", 8, NELBO, "8(J+T)"),
    )
    for label, model, M, row, calls in rows:
        numbers, entropies = split(paper.BEST_OF_N[label]) if is_lm1b else (None, None)
        entries = row_entries(lookup, M, row, grid, numbers, entropies, model)
        table.rows.append((label, calls, entries))
    matched = f"{best_of_n(8)}.{MATCHED}"
    label = "LKF M=1, 8 noise draws, cooled to the mixture's pooled entropy"
    table.rows.append((label, "8(J+T)", row_entries(lookup, 1, matched, grid, None)))
    whole, dropped, level = [], [], []
    for J in grid:
        mixture, single = lookup.find(8, NELBO, J), control(lookup, 8, J)
        gain, rest = advantages(lookup, mixture, single)
        flagged = is_flagged(lookup, mixture)
        number = at(paper.ADVANTAGE, J) if is_lm1b else None
        whole.append(_gain(gain, mixture, number, flagged))
        dropped.append(_gain(rest, mixture, None, flagged))
        cooled = lookup.find(1, matched, J)
        gain = gain_over(lookup, lookup.figure(mixture), lookup.figure(cooled))
        level.append(_gain(gain, cooled, None, False))
    table.rows.append(("advantage of the mixture over M=1", "", whole))
    table.rows.append(("... best of 7: without its favourite component", "", dropped))
    table.rows.append(("... at equal pooled entropy", "", level))
    kind = "difference" if lookup.higher_is_better else "1 - mixture / control"
    table.notes.append(f"Advantage: {kind}; positive is better for the mixture.")
    return table


def _gain(value: float | None, record: Record | None, number: float | None, flagged: bool) -> Entry:
    figure = None if value is None else Estimate(value, None, 1)
    return Entry(figure, None, number, None, None if value is None else record, flagged)


def commitm(lookup: Lookup) -> Table:
    """Table commitm: one chain against best-of-M over J."""
    grid = grid_of(lookup)
    table = Table("commitm", "One chain against best-of-M", [f"J={J}" for J in grid])
    corpus = paper_corpus(lookup)
    rows = (
        ("M=1, one chain", 1, SINGLE, "J"),
        ("commit-M, M=4", 4, SINGLE, "J"),
        ("commit-M, M=8", 8, SINGLE, "J"),
        ("best-of-4", 4, NELBO, "4(J+T)"),
        ("best-of-8", 8, NELBO, "8(J+T)"),
    )
    for label, M, row, calls in rows:
        entropies: list[float | None] = [None] * (len(paper.J_GRID) - 1)
        entropies.append(paper.COMMIT_M_H32[corpus][label])
        numbers = paper.COMMIT_M[corpus][label]
        table.rows.append((label, calls, row_entries(lookup, M, row, grid, numbers, entropies)))
    return table


def deferred(lookup: Lookup) -> Table:
    """Table deferred: a free latent for j steps, then the router's favourite."""
    last = last_of(lookup)
    columns = [*(f"j={j}" for j in paper.DEFERRED_J), "commit-M"]
    table = Table("deferred", f"Deferred commitment at J={last}", columns)
    same = paper_corpus(lookup) == paper.LM1B and last == J_LAST
    for M in MIXTURES:
        entries = []
        for i, j in enumerate(paper.DEFERRED_J):
            number = paper.DEFERRED[M][i] if same else None
            entries.append(lookup.entry(lookup.find(M, f"deferred.j{j}", last), number))
        number = paper.DEFERRED_COMMIT[M] if same else None
        entries.append(lookup.entry(lookup.find(M, SINGLE, last), number))
        table.rows.append((f"M={M}", "J", entries))
    return table


def policynfe(lookup: Lookup) -> Table:
    """Table policynfe: the policies over J."""
    grid = grid_of(lookup)
    table = Table("policynfe", "Decoding policies over the steps", [f"J={J}" for J in grid])
    is_lm1b = paper_corpus(lookup) == paper.LM1B
    rows = {
        "commit-M": (SINGLE, "J"),
        "random component": ("best_of_m.random", "J"),
        "halving, evidence": ("halving", "2J / 3J"),
        "best-of-M, NELBO": (NELBO, "M(J+T)"),
        "best-of-M, evidence": (EVIDENCE, "MJ"),
        "calibrated component (ours)": (CALIBRATED, "J"),
    }
    for M in MIXTURES:
        for label, (row, calls) in rows.items():
            pairs = paper.POLICY_NFE[M].get(label) if is_lm1b else None
            numbers, entropies = split(pairs) if pairs else (None, None)
            entries = row_entries(lookup, M, row, grid, numbers, entropies)
            table.rows.append((f"M={M}, {label}", calls, entries))
    return table


def probedepth(lookup: Lookup) -> Table:
    """Table probedepth: how early the evidence tells the winner."""
    last = last_of(lookup)
    columns = [
        *(f"agreement M={M}" for M in MIXTURES),
        *(f"rank correlation M={M}" for M in MIXTURES),
        *(f"figure M={M}" for M in MIXTURES),
    ]
    table = Table("probedepth", f"Committing to the evidence after j of {last} steps", columns)
    same = paper_corpus(lookup) == paper.LM1B and last == J_LAST
    for i, j in enumerate(paper.PROBE_J):
        record_of = {M: lookup.find(M, f"probe.j{j}.shared", last) for M in MIXTURES}
        entries = []
        for M in MIXTURES:
            number = paper.PROBE_AGREEMENT[M][i] if same else None
            entries.append(plain(lookup, record_of[M], "probe_agreement", number))
        for M in MIXTURES:
            number = paper.PROBE_RHO[M][i] if same and M in paper.PROBE_RHO else None
            entries.append(plain(lookup, record_of[M], "probe_rank_correlation", number))
        for M in MIXTURES:
            number = paper.PROBE_PPL[M][i] if same else None
            entries.append(lookup.entry(record_of[M], number))
        table.rows.append((f"j={j}", f"Mj+{last}-j", entries))
    return table


def percomp(lookup: Lookup) -> Table:
    """Table percomp: each component alone, and reranked."""
    last, M = last_of(lookup), 8
    columns = [*(f"k={k}" for k in range(M)), "mixture"]
    table = Table("percomp", f"Single components at M={M}, J={last}", columns)
    same = paper_corpus(lookup) == paper.LM1B and last == J_LAST
    rows = (
        ("solo", "solo.k{}", SINGLE, "J"),
        ("reranked", "solo.k{}.n8.nelbo", NELBO, "8(J+T)"),
    )
    for label, name, mixture, calls in rows:
        numbers = paper.PER_COMPONENT[label] if same else (None,) * 9
        entropies = paper.PER_COMPONENT["reranked H"] if same and label == "reranked" else None
        entries = []
        for k in range(M + 1):
            record = lookup.find(M, name.format(k) if k < M else mixture, last)
            entropy = None if entropies is None else entropies[k]
            entries.append(lookup.entry(record, numbers[k], entropy))
        table.rows.append((label, calls, entries))
    best = lookup.find(M, NELBO, last)
    shares = [plain(lookup, best, f"share[{k}]", None) for k in range(M)]
    table.rows.append(
        (
            "share among best-of-8's picks",
            "",
            [*shares, plain(lookup, best, "share_entropy", None)],
        )
    )
    table.notes.append("The last place of the share row is the entropy of the shares, nats.")
    return table


LAYOUTS: dict[str, Callable[[Lookup], Table]] = {
    "main": main,
    "nats": nats,
    "cost": cost,
    "coupling": coupling,
    "decode": decode,
    "bestofn": bestofn,
    "commitm": commitm,
    "deferred": deferred,
    "policynfe": policynfe,
    "probedepth": probedepth,
    "percomp": percomp,
}

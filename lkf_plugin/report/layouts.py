"""The paper's decoding tables: which record stands where, and the paper's number beside it.

Each function takes the records of one corpus. Corpora that the paper has not get its LM1B numbers
beside, for the shape only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lkf_plugin.evaluate.estimate import Estimate
from lkf_plugin.evaluate.record import ResultRecord
from lkf_plugin.report import paper_numbers as paper
from lkf_plugin.report.advantages import (
    advantages,
    best_of_n,
    control,
    gain_over,
    is_flagged,
)
from lkf_plugin.report.lookup import Lookup
from lkf_plugin.report.table import Entry, Table

SINGLE, NELBO, EVIDENCE = "commit", "best_of_m.nelbo", "best_of_m.evidence"
MIXTURES = (4, 8)
CALIBRATED = "calibrated.nelbo.theta0.1"
J_LAST = 32
MATCHED = "matched"


# --- helpers -----------------------------------------------------------------------------------


def _grid(lookup: Lookup) -> list[int]:
    """The paper's J that were measured, all of them if none was."""
    measured = [J for J in paper.J_GRID if J in lookup.steps()]
    return measured or list(paper.J_GRID)


def _last(lookup: Lookup) -> int:
    return max(_grid(lookup))


def _paper_corpus(lookup: Lookup) -> str:
    corpora = {record.corpus for record in lookup.records}
    return paper.WIKITEXT if any("wikitext" in one for one in corpora) else paper.LM1B


def _at(numbers: Sequence[float | None] | None, J: int) -> float | None:
    return None if numbers is None else numbers[paper.J_GRID.index(J)]


def _row(
    lookup: Lookup,
    M: int,
    row: str,
    grid: Sequence[int],
    numbers: Sequence[float | None] | None,
    entropies: Sequence[float | None] | None = None,
    model: str = "lkf",
) -> list[Entry]:
    entries = []
    for J in grid:
        record = lookup.find(M, row, J, model)
        entries.append(
            lookup.entry(record, _at(numbers, J), _at(entropies, J), is_flagged(lookup, record))
        )
    return entries


def _split(pairs: Sequence[tuple[float, float] | None]) -> tuple[list[float | None], ...]:
    return (
        [None if pair is None else pair[0] for pair in pairs],
        [None if pair is None else pair[1] for pair in pairs],
    )


# --- tables ------------------------------------------------------------------------------------


def main(lookup: Lookup) -> Table:
    """Table main: every method over J, likelihood, entropy and information."""
    grid, last = _grid(lookup), _last(lookup)
    columns = ["ELBO-PPL", *(f"J={J}" for J in grid), f"H@{last}", "I(k)"]
    table = Table("main", "Methods over the number of steps", columns)
    corpus = _paper_corpus(lookup)
    places = {
        "MDLM": ("mdlm", 1, SINGLE, "J"),
        "MDLM, best-of-8": ("mdlm", 1, best_of_n(8), "8(J+T)"),
        "SEDD": ("sedd", 1, SINGLE, "J"),
        "SDTT teacher (7 rounds)": ("sdtt", 1, SINGLE, "J"),
        "Di4C, best r4": ("di4c", 1, SINGLE, "J"),
        "ReDi, best rect3": ("redi", 1, SINGLE, "J"),
        "AR (128 calls)": ("ar", 1, SINGLE, "L"),
        "LKF M=1, best-of-8": ("lkf", 1, best_of_n(8), "8(J+T)"),
        "LKF M=1": ("lkf", 1, SINGLE, "J"),
        "LKF M=4": ("lkf", 4, NELBO, "4(J+T)"),
        "LKF M=8": ("lkf", 8, NELBO, "8(J+T)"),
    }
    for label, numbers in paper.MAIN[corpus].items():
        model, M, row, calls = places[label]
        elbo, entropy, information = paper.MAIN_REST[corpus][label]
        once = row == NELBO or row == SINGLE  # one likelihood a model, not a decode
        likelihood = lookup.find(M, "likelihood", None, model) if once else None
        found = next(
            (
                r
                for r in lookup.records
                if r.num_components == M and r.settings.get("row") == "information"
            ),
            None,
        )
        entries = [_plain(lookup, likelihood, "elbo_ppl", elbo)]
        entries += _row(lookup, M, row, grid, numbers, model=model)
        at_last = lookup.find(M, row, last, model)
        entries.append(_plain(lookup, at_last, "entropy", entropy))
        own = found if model == "lkf" else None
        entries.append(_plain(lookup, own, "information", information))
        table.rows.append((label, calls, entries))
    table.notes.append("ELBO-PPL is exp of the marginal NELBO a token, as MDLM counts it.")
    return table


def _plain(lookup: Lookup, record: ResultRecord | None, metric: str, number: float | None) -> Entry:
    figure = lookup.figure(record, metric)
    return Entry(figure, None, number, None, record if figure is not None else None)


def decode(lookup: Lookup) -> Table:
    """Table decode: every policy at one J."""
    last = _last(lookup)
    table = Table("decode", f"Every decoding policy at J={last}", [f"M={M}" for M in MIXTURES])
    numbers = paper.DECODE if _paper_corpus(lookup) == paper.LM1B else {}
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
    grid = _grid(lookup)
    table = Table("bestofn", "Removing the mixture at matched budget", [f"J={J}" for J in grid])
    is_lm1b = _paper_corpus(lookup) == paper.LM1B
    rows = (
        ("MDLM, one chain", "mdlm", 1, SINGLE, "J"),
        ("LKF M=1, one chain", "lkf", 1, SINGLE, "J"),
        ("LKF M=8, one component", "lkf", 8, SINGLE, "J"),
        ("MDLM, 8 noise draws", "mdlm", 1, best_of_n(8), "8(J+T)"),
        ("LKF M=1, 8 noise draws", "lkf", 1, best_of_n(8), "8(J+T)"),
        ("LKF M=8, 8 components", "lkf", 8, NELBO, "8(J+T)"),
    )
    for label, model, M, row, calls in rows:
        numbers, entropies = _split(paper.BEST_OF_N[label]) if is_lm1b else (None, None)
        entries = _row(lookup, M, row, grid, numbers, entropies, model)
        table.rows.append((label, calls, entries))
    matched = f"{best_of_n(8)}.{MATCHED}"
    label = "LKF M=1, 8 noise draws, cooled to the mixture's pooled entropy"
    table.rows.append((label, "8(J+T)", _row(lookup, 1, matched, grid, None)))
    whole, dropped, level = [], [], []
    for J in grid:
        mixture, single = lookup.find(8, NELBO, J), control(lookup, 8, J)
        gain, rest = advantages(lookup, mixture, single)
        flagged = is_flagged(lookup, mixture)
        number = _at(paper.ADVANTAGE, J) if is_lm1b else None
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


def _gain(
    value: float | None, record: ResultRecord | None, number: float | None, flagged: bool
) -> Entry:
    figure = None if value is None else Estimate(value, None, 1)
    return Entry(figure, None, number, None, None if value is None else record, flagged)


def commitm(lookup: Lookup) -> Table:
    """Table commitm: one chain against best-of-M over J."""
    grid = _grid(lookup)
    table = Table("commitm", "One chain against best-of-M", [f"J={J}" for J in grid])
    corpus = _paper_corpus(lookup)
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
        table.rows.append((label, calls, _row(lookup, M, row, grid, numbers, entropies)))
    return table


def deferred(lookup: Lookup) -> Table:
    """Table deferred: a free latent for j steps, then the router's favourite."""
    last = _last(lookup)
    columns = [*(f"j={j}" for j in paper.DEFERRED_J), "commit-M"]
    table = Table("deferred", f"Deferred commitment at J={last}", columns)
    same = _paper_corpus(lookup) == paper.LM1B and last == J_LAST
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
    grid = _grid(lookup)
    table = Table("policynfe", "Decoding policies over the steps", [f"J={J}" for J in grid])
    is_lm1b = _paper_corpus(lookup) == paper.LM1B
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
            numbers, entropies = _split(pairs) if pairs else (None, None)
            entries = _row(lookup, M, row, grid, numbers, entropies)
            table.rows.append((f"M={M}, {label}", calls, entries))
    return table


def probedepth(lookup: Lookup) -> Table:
    """Table probedepth: how early the evidence tells the winner."""
    last = _last(lookup)
    columns = [
        *(f"agreement M={M}" for M in MIXTURES),
        *(f"rank correlation M={M}" for M in MIXTURES),
        *(f"figure M={M}" for M in MIXTURES),
    ]
    table = Table("probedepth", f"Committing to the evidence after j of {last} steps", columns)
    same = _paper_corpus(lookup) == paper.LM1B and last == J_LAST
    for i, j in enumerate(paper.PROBE_J):
        found = {M: lookup.find(M, f"probe.j{j}.shared", last) for M in MIXTURES}
        entries = []
        for M in MIXTURES:
            number = paper.PROBE_AGREEMENT[M][i] if same else None
            entries.append(_plain(lookup, found[M], "probe_agreement", number))
        for M in MIXTURES:
            number = paper.PROBE_RHO[M][i] if same and M in paper.PROBE_RHO else None
            entries.append(_plain(lookup, found[M], "probe_rank_correlation", number))
        for M in MIXTURES:
            number = paper.PROBE_PPL[M][i] if same else None
            entries.append(lookup.entry(found[M], number))
        table.rows.append((f"j={j}", f"Mj+{last}-j", entries))
    return table


def percomp(lookup: Lookup) -> Table:
    """Table percomp: each component alone, and reranked."""
    last, M = _last(lookup), 8
    columns = [*(f"k={k}" for k in range(M)), "mixture"]
    table = Table("percomp", f"Single components at M={M}, J={last}", columns)
    same = _paper_corpus(lookup) == paper.LM1B and last == J_LAST
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
    shares = [_plain(lookup, best, f"share[{k}]", None) for k in range(M)]
    table.rows.append(
        (
            "share among best-of-8's picks",
            "",
            [*shares, _plain(lookup, best, "share_entropy", None)],
        )
    )
    table.notes.append("The last place of the share row is the entropy of the shares, nats.")
    return table


LAYOUTS: dict[str, Callable[[Lookup], Table]] = {
    "main": main,
    "decode": decode,
    "bestofn": bestofn,
    "commitm": commitm,
    "deferred": deferred,
    "policynfe": policynfe,
    "probedepth": probedepth,
    "percomp": percomp,
}

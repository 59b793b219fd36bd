"""docs/synthetic.md's tables of samples, and AgreeText's: validity, recall, diversity, shuffles.

As ``synthetic_tables``: records in, Markdown out, all values in nats unless a heading says
otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from experiments.studies.agreetext import BATCHES, ROWS
from experiments.studies.cells import (
    J_HEADER,
    block,
    by_seed,
    draws_note,
    estimate,
    over_steps,
    rates_note,
    row_label,
    row_name,
    samples_note,
)
from experiments.studies.figures import PAPER_IN_SUPPORT
from experiments.studies.measures import STEPS_J
from experiments.studies.recipe import CLAUSES
from experiments.studies.runs import (
    NOT_RUN,
    Group,
    changes,
    group_runs,
    note,
    plain,
    spread,
    with_gaps,
)
from lkf_plugin.corpora import agreetext
from lkf_plugin.corpora.hidden_agreement import HiddenAgreement
from lkf_plugin.corpora.parity import LOG2
from lkf_plugin.records.record import Record


def support(records: Sequence[Record]) -> str:
    """In-support rate and recall of one frozen component per sample, against J."""
    groups = group_runs(records)
    rows = []
    for recipe, group in with_gaps("support", groups, lambda r: r.components):
        label = row_label(recipe, group)
        if group is None:
            rows.append([f"{label}: in support", *[NOT_RUN] * len(STEPS_J)])
        else:
            rows.append([f"{label}: in support", *over_steps(group, "in_support", 3)])
            rows.append([f"{label}: recall", *over_steps(group, "recall", 2)])
        M = recipe.components
        exact = [plain(HiddenAgreement().few_step_validity(J, M), 3) for J in STEPS_J]
        rows.append([f"M={M}: in support, exact", *exact])
    paper = [f"{PAPER_IN_SUPPORT[J]:.2f}" if J in PAPER_IN_SUPPORT else "" for J in STEPS_J]
    rows.append(["M=16: in support, paper", *paper])
    return block(("", *J_HEADER), rows, note(groups), rates_note(groups, "in_support"))


def shuffle(records: Sequence[Record]) -> str:
    """Sample TC of the full step when k is shuffled, by two estimators."""
    groups = group_runs(records)
    rows = []
    for recipe, group in with_gaps("modes", groups, lambda r: r.components):
        for name, label in (("none", "routed"), ("sequence", "k shuffled by row"),
                            ("position", "k shuffled by position"),
                            ("factorized", "independent uniform tokens")):  # fmt: skip
            head = [row_name(recipe), label]
            if group is None:
                rows.append([*head, NOT_RUN, "", ""])
                continue
            plug_in = group.values("shuffle", f"plug_in_{name}")
            bits = [value / LOG2 for value in plug_in]
            chain = spread(group.values("shuffle", f"chain_{name}"), 2)
            rows.append([*head, chain, spread(plug_in, 2), spread(bits, 1)])
    header = ("M", "samples", "TC, chain", "TC, plug-in", "plug-in, bits")
    exact = f"Exact TC of the corpus: {plain(HiddenAgreement().total_correlation(), 2)}."
    return block(header, rows, note(groups), exact, samples_note(groups, "shuffle"))


def selection(records: Sequence[Record]) -> str:
    """What picking the best of M at J = 1 does to validity and to diversity."""
    groups = group_runs(records)
    rows = []
    for recipe, group in with_gaps("modes", groups, lambda r: r.components):
        for name, label in (("router", "one component, drawn by the router"),
                            ("argmin", "argmin NELBO"),
                            ("softmax", "draw from softmax(-NELBO)")):  # fmt: skip
            head = [row_name(recipe), label]
            if group is None:
                rows.append([*head, NOT_RUN, "", ""])
                continue
            rows.append([
                *head, spread(group.values("selection", name, "in_support"), 3),
                by_seed(group.values("selection", name, "distinct_values"), 0),
                spread(group.values("selection", name, "value_entropy"), 2),
            ])  # fmt: skip
    values = HiddenAgreement().values
    header = ("M", "pick", "in support", f"of {values} values, by seed",
              f"entropy of the value (log {values} = {math.log(values):.2f})")  # fmt: skip
    return block(header, rows, note(groups), samples_note(groups, "selection"))


def agreetext_losses(records: Sequence[Record]) -> str:
    """AgreeText's two losses less H/L, and less those of M = 1 on the same draws and seed."""
    groups = group_runs(records)
    rows = []
    mixture, marginal = "mixture_less_entropy", "marginal_less_entropy"
    for recipe, group in with_gaps("agreetext", groups, lambda r: r.components):
        known = agreetext.clean_posterior_optimum(CLAUSES, recipe.components)
        best = plain(known - agreetext.nelbo_optimum(CLAUSES), 4)
        if group is None:
            rows.append([row_name(recipe), "", NOT_RUN, best, "", NOT_RUN, ""])
            continue
        rows.append([
            row_name(recipe), str(recipe.steps),
            estimate(group, mixture, 4), best, _less_one(group, groups, mixture),
            estimate(group, marginal, 4), _less_one(group, groups, marginal),
        ])  # fmt: skip
    header = ("M", "steps", "L_x0 - H/L", "best known", "L_x0 less M = 1's",
              "marginal NELBO - H/L (optimum 0)", "marginal less M = 1's")  # fmt: skip
    same = f"All losses are taken on the same {BATCHES * ROWS:,} draws."
    error = draws_note(groups, "mixture_less_entropy", "losses")
    return block(header, rows, note(groups), same, error)


def agreetext_samples(records: Sequence[Record]) -> str:
    """Valid AgreeText samples against J, and how evenly the configurations occur."""
    groups = group_runs(records)
    rows = []
    for recipe, group in with_gaps("agreetext", groups, lambda r: r.components):
        label, M = row_label(recipe, group), recipe.components
        best = [agreetext.few_step_validity(J, CLAUSES, M, adaptive=M > 1) for J in STEPS_J]
        exact = [f"M={M}: valid, closed form", *(plain(share, 3) for share in best)]
        if group is None:
            rows += [[f"{label}: valid", *[NOT_RUN] * len(STEPS_J)], exact]
            continue
        entropy = "configuration_entropy"
        rows += [
            [f"{label}: valid", *over_steps(group, "valid", 3)],
            exact,
            [f"{label}: configuration entropy", *over_steps(group, entropy, 2)],
            [f"{label}: of as many perfect samples", *over_steps(group, f"{entropy}_expected", 2)],
        ]
    return block(("", *J_HEADER), rows, note(groups), rates_note(groups, "valid"))


def _less_one(group: Group, groups: Sequence[Group], name: str) -> str:
    """The loss less that of M = 1, over the seeds that both have.

    M = 1 after as many steps; where there is none, after most steps, and the cell says so.
    """
    if group.recipe.components == 1:
        return ""
    steps = group.recipe.steps
    ones = [g for g in groups if g.recipe.components == 1 and not changes(g.recipe)]
    ones.sort(key=lambda g: (g.recipe.steps == steps, g.recipe.steps))
    if not ones:
        return ""
    one = dict(zip(ones[-1].seeds, ones[-1].values(name), strict=True))
    pairs = zip(group.seeds, group.values(name), strict=True)
    gains = [value - one[seed] for seed, value in pairs if seed in one]
    unlike = ones[-1].recipe.steps
    remark = "" if unlike == steps else f" (M = 1: {unlike} steps)"
    return spread(gains, 4) + remark if gains else ""

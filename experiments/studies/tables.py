"""docs/synthetic.md's tables, made from the studies' records alone.

Every function takes records and returns Markdown: a table, then a line with its seeds, steps and
machine. All values are in nats unless a heading says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from experiments.studies.cells import (
    EXCESS,
    TC,
    I,
    block,
    by_seed,
    draws_note,
    likelihood,
    row_name,
)
from experiments.studies.figures import PAPER
from experiments.studies.recipe import Recipe
from experiments.studies.records import measured_values, recipe_values
from experiments.studies.runs import (
    NOT_RUN,
    ablation,
    describe,
    group_runs,
    missing,
    name_ablation,
    note,
    number,
    origin,
    perturbed,
    plain,
    spread,
    with_gaps,
)
from experiments.studies.sample_tables import (
    agreetext_losses,
    agreetext_samples,
    selection,
    shuffle,
    support,
)
from experiments.studies.targets import TARGETS, Target
from lkf_plugin.corpora.hidden_agreement import HiddenAgreement
from lkf_plugin.corpora.parity import LOG2, Parity
from lkf_plugin.errors import UserError
from lkf_plugin.records.record import Record

Records = Sequence[Record]
ROUNDING = 1e-9  # nats by which a bound may be missed in double precision


def tables(records: Mapping[str, Records]) -> dict[str, str]:
    """Markdown of every block of the page, by the block's name.

    Args:
        records: of every study, by study.

    Raises:
        UserError: a record that lacks what its table shows.
    """
    # a perturbed start is a second run of its seed: no mean over seeds counts it
    drawn = {study: [r for r in records[study] if not perturbed(r)] for study in records}
    made = {name: make(drawn[study]) for name, (study, make) in _BLOCKS.items()}
    return {**made, "targets": targets(records), "missing": missing(records)}


def hidden(records: Records) -> str:
    """Hidden agreement, analytic form, beside the paper."""
    corpus = HiddenAgreement()
    groups = [group for group in group_runs(records) if group.recipe.form == "analytic"]
    rows = []
    for recipe, group in with_gaps("hidden", groups, lambda r: (r.components, r.form)):
        if recipe.form != "analytic":
            continue
        M = recipe.components
        paper = [f"{value:.2f}" for value in PAPER[M]] if M in PAPER else ["", "", ""]
        ceilings = [
            plain(float(corpus.information(0.0, 1.0, M)), 3),
            plain(float(corpus.captured_correlation(0.0, 1.0, M)), 2),
        ]
        here = likelihood(group, corpus.nll(M))
        ties, steps = (recipe.ties, str(recipe.steps)) if group else ("", "")
        rows.append([
            row_name(recipe), ties, steps, paper[0], here[I], ceilings[0], paper[1], here[TC],
            ceilings[1], paper[2], here["nll"], here["optimum"], here[EXCESS],
        ])  # fmt: skip
    header = ("M", "ties", "steps", "I: paper", "I: here", "log M", "TC: paper", "TC: here",
              "(L-1) log M", "NLL: paper", "NLL: here", "exact", "excess")  # fmt: skip
    return block(header, rows, note(groups), draws_note(groups, EXCESS))


def learned(records: Records) -> str:
    """The learned form beside the analytic one, for the M that have or are to have both."""
    corpus = HiddenAgreement()
    rows, shown = [], []
    every = with_gaps("hidden", group_runs(records), lambda r: (r.components, r.form))
    wanted = {recipe.components for recipe, _ in every if recipe.form == "learned"}
    for recipe, group in every:
        if recipe.components not in wanted:
            continue
        shown += [group] if group else []
        here = likelihood(group, corpus.nll(recipe.components))
        rows.append([
            row_name(recipe), recipe.form, str(recipe.steps) if group else "", here[I],
            here[TC], here["nll"], here["optimum"], here[EXCESS],
        ])  # fmt: skip
    header = ("M", "form", "steps", "I", "TC", "NLL", "exact", "excess")
    return block(header, rows, note(shown), draws_note(shown, EXCESS))


def ties(records: Records) -> str:
    """What each remedy against ties reaches, by seed."""
    groups = group_runs(records)
    aim = next(target for target in TARGETS if target.study == "ties").low
    rows = []
    for recipe, group in with_gaps("ties", groups, lambda r: (r.components, r.ties)):
        head = [row_name(recipe), recipe.ties]
        if group is None:
            rows.append([*head, "", NOT_RUN, "", "", "", ""])
            continue
        values = group.values(I)
        rows.append([
            *head, str(recipe.steps), by_seed(values, 3),
            f"{sum(value >= aim for value in values)}/{len(values)}", spread(values, 3),
            by_seed(group.values(EXCESS), 4), spread(group.values(EXCESS), 4),
        ])  # fmt: skip
    header = ("M", "remedy", "steps", "I by seed", f"seeds with I >= {aim:.2f}", "I",
              "excess by seed", "excess")  # fmt: skip
    return block(header, rows, note(groups), draws_note(groups, EXCESS))


def parity(records: Records) -> str:
    """Parity beside the paper's flat line."""
    corpus = Parity()
    groups = group_runs(records)
    rows = []
    for recipe, group in with_gaps("parity", groups, lambda r: r.components):
        here = likelihood(group, corpus.nll(1), 4, 4)
        steps = str(recipe.steps) if group else ""
        rows.append([
            row_name(recipe), steps, here[EXCESS], "7.1", here["nll"], "0", here[I], "0",
            here[TC],
        ])  # fmt: skip
    header = ("M", "steps", "excess over M = 1's optimum", "NLL: paper (about)", "NLL: here",
              "I: paper", "I: here", "TC: paper", "TC: here")  # fmt: skip
    recipe = groups[0].recipe if groups else Recipe("parity", 1)
    # the loss of independent fair bits; M = 1's optimum also knows the last bit
    blind = corpus.length * (1 - recipe.t_max / 2) * (1 + LOG2) / 2
    optimum = corpus.nll(1, recipe.t_max)
    exact = (
        f"The optimum of M = 1 is {plain(optimum, 3)}; a model that guesses the last masked bit "
        f"too has an excess of {plain(blind - optimum, 4)}."
    )
    return block(header, rows, note(groups), exact, draws_note(groups, EXCESS))


def structures(records: Records) -> str:
    """Latents per block beside one per sequence, where one is all there is to know."""
    groups = group_runs(records)
    rows = []
    for recipe, group in with_gaps("structures", groups, _of_structure):
        per_block = f"{recipe.block_components} over {recipe.block_length}"
        head = [
            recipe.corpus, recipe.latent, recipe.ties, str(recipe.components),
            per_block if recipe.block_components > 1 else "",
        ]  # fmt: skip
        if group is None:
            rows.append([*head, "", NOT_RUN, ""])
            continue
        values = group.values(EXCESS)
        rows.append([*head, str(recipe.steps), by_seed(values, 4), spread(values, 4)])
    header = ("corpus", "latent", "ties", "per sequence", "per block over positions", "steps",
              "excess by seed", "excess")  # fmt: skip
    exact = (
        "Excess over the exact optimum of one latent of eight values per sequence (hidden) and of "
        "M = 1 (parity), on the same draws."
    )
    return block(header, rows, exact, note(groups, structure), draws_note(groups, EXCESS))


def structure(recipe: Recipe) -> str:
    """A recipe's corpus and structure of latents."""
    return " ".join(part for part in _of_structure(recipe) if part != "none")


def _of_structure(recipe: Recipe) -> tuple[str, str, str]:
    return recipe.corpus, recipe.latent, recipe.ties


def ablations(records: Records) -> str:
    """Router regulariser and latent scale."""
    rows = []
    every = with_gaps("ablations", group_runs(records), ablation)
    groups = [group for _, group in every if group]  # in the order of the rows
    for recipe, group in every:
        here = likelihood(group, HiddenAgreement().nll(recipe.components))
        steps = str(recipe.steps) if group else ""
        seeds = ", ".join(map(str, group.seeds)) if group else ""
        rows.append([ablation(recipe), steps, here[I], here[TC], here[EXCESS], seeds])
    header = ("change", "steps", "I", "TC", "excess", "seeds")
    return block(header, rows, note(groups, name_ablation), draws_note(groups, EXCESS))


def targets(records: Mapping[str, Records]) -> str:
    """Every target with the worst run's value and all; unlike recipes in rows of their own."""
    rows = []
    for target in TARGETS:
        groups = [
            group for group in group_runs(records[target.study])
            if target.where(recipe_values(group.records[0]))
        ]  # fmt: skip
        bound = f">= {target.low:.4g}" if target.low > -math.inf else f"<= {target.high:.4g}"
        head = [target.study, target.text, bound]
        for group in groups:
            values = [_target_value(target, record) for record in group.records]
            met = sum(map(target.met, values))
            run = f"{describe(group.recipe)}, {group.starts}"
            worst = plain(target.worst(values), 4)
            rows.append([*head, run, worst, f"{met}/{len(values)}", by_seed(values, 4)])
        if not groups:
            rows.append([*head, NOT_RUN, "", "", ""])
    header = ("study", "target", "asked", "runs", "worst", "met", "each")
    studies = dict.fromkeys(target.study for target in TARGETS)
    every = [record for study in studies for record in records[study]]
    return block(header, rows, origin(every) if every else "Not run yet.")


def theory(records: Records) -> str:
    """What the theorem checks found, one bullet each."""
    if not records:
        return f"* {NOT_RUN}."
    one = records[0]
    first = number(one, "mixgap", "least_slack")
    ceiling = number(one, "mixgap", "least_slack_of_ceiling")
    equal = number(one, "mixgap", "hidden_agreement_slack")
    hold = "both bounds hold" if min(first, ceiling) > -ROUNDING else "A BOUND FAILS"
    lines = [
        f"* Thm. mixgap, {number(one, 'mixgap', 'trials'):.0f} pairs: {hold}; least slack "
        f"{first:.1e} (first bound) and {plain(ceiling, 3)} (with the ceiling); slack {equal:.0e} "
        "for hidden agreement at M = V."
    ]
    cases = one.series["parity"]
    kept = all(case["found"] >= case["bound"] - ROUNDING for case in cases)
    # the most components at which the bound still says something
    last = {case["bits"]: case for case in cases if case["bound"] > 0}
    shown = ", ".join(
        f"{plain(case['found'], 3)} against {plain(case['bound'], 3)} "
        f"(d={case['bits']}, M={case['components']})"
        for case in last.values()
    )
    lines.append(
        f"* Thm. parity, d = 2 to {max(last)}: TV is "
        f"{'never' if kept else 'SOMETIMES'} below (1 - M / 2^(d-1)) / 3: {shown}."
    )
    orders = ", ".join(f"2^{plain(order, 2)}" for order in one.series["rates"]["orders"])
    lines.append(
        "* Prop. rates: halving the step divides the distance to a factorised step by "
        f"{orders} (2^2 in the limit)."
    )
    return "\n".join([*lines, "", origin([one])])


_BLOCKS: dict[str, tuple[str, Callable[[Records], str]]] = {
    "hidden": ("hidden", hidden),
    "learned": ("hidden", learned),
    "support": ("support", support),
    "shuffle": ("modes", shuffle),
    "selection": ("modes", selection),
    "ties": ("ties", ties),
    "parity": ("parity", parity),
    "structures": ("structures", structures),
    "ablations": ("ablations", ablations),
    "agreetext": ("agreetext", agreetext_losses),
    "agreetext-samples": ("agreetext", agreetext_samples),
    "theory": ("theory", theory),
}


def _target_value(target: Target, record: Record) -> float:
    try:
        return target.value(measured_values(record))
    except (KeyError, ValueError) as error:
        raise UserError(
            f"Record {record.name} of {target.study} lacks what the target '{target.text}' "
            "reads: remove it and run the study again."
        ) from error

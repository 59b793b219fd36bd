"""Cells, tables and the sentences under them, for the synthetic studies' tables.

A group is the runs of one recipe (``synthetic_runs.Group``); None stands for a run that is not
there. All values are in nats.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from experiments.studies.measures import STEPS_J
from experiments.studies.recipe import Recipe
from experiments.studies.runs import (
    NOT_RUN,
    Group,
    changes,
    describe,
    number,
    place,
    plain,
    spread,
)
from lkf_plugin.records.markdown import markdown_table

I, TC, EXCESS = "information", "total_correlation", "excess"  # noqa: E741
J_HEADER = tuple(f"J={J}" for J in STEPS_J)


def block(header: Sequence[str], rows: Iterable[Sequence[str]], *notes: str) -> str:
    """A Markdown table and, below it, its notes as one paragraph."""
    table = markdown_table(header, rows, empty=" ")
    return "\n".join([table, "", " ".join(one for one in notes if one)])


def row_name(recipe: Recipe) -> str:
    """M, and what else sets the run apart from its study's own."""
    other = changes(recipe)
    return f"{recipe.components} ({other})" if other else str(recipe.components)


def row_label(recipe: Recipe, group: Group | None) -> str:
    """The run and how many seeds of it, for a row over J."""
    if group is None:
        return f"M={recipe.components}"
    count = len(group.records)
    return f"{describe(recipe)}, {count} seed{'s' if count > 1 else ''}"


def likelihood(
    group: Group | None, optimum: float, information: int = 3, correlation: int = 2
) -> dict[str, str]:
    """Cells of a likelihood measurement; NLL is the exact optimum plus the paired excess.

    Args:
        group: the runs.
        optimum: the exact loss, to show where no run is there.
        information, correlation: digits of I and TC.
    """
    if group is None:
        absent = dict.fromkeys((I, TC, "nll"), NOT_RUN)
        return {**absent, "optimum": plain(optimum, 3), EXCESS: ""}
    exact = group.values("optimum")
    losses = [a + b for a, b in zip(exact, group.values(EXCESS), strict=True)]
    return {
        I: spread(group.values(I), information),
        TC: spread(group.values(TC), correlation),
        "nll": spread(losses, 3),
        "optimum": plain(exact[0], 3),
        EXCESS: estimate(group, EXCESS, 4),
    }


def estimate(group: Group, name: str, digits: int) -> str:
    """Spread over seeds; a single seed shows the standard error of its draws instead."""
    alone = f" (1 seed, se {plain(group.errors(name)[0], digits)})"
    return spread(group.values(name), digits, alone)


def over_steps(group: Group, name: str, digits: int) -> list[str]:
    """A cell for each J; the row's label says how many seeds there are."""
    return [
        spread([number(r, name, place(r, J)) for r in group.records], digits, alone="")
        for J in STEPS_J
    ]


def by_seed(values: Iterable[float], digits: int) -> str:
    """All values, in the order of the seeds."""
    return " ".join(plain(value, digits) for value in values)


def draws_note(groups: Sequence[Group], name: str, what: str = EXCESS) -> str:
    """How exactly one run's estimate is known."""
    if not groups:
        return ""
    largest = max(error for group in groups for error in group.errors(name))
    return f"The draws leave a standard error of at most {plain(largest, 4)} on a run's {what}."


def rates_note(groups: Sequence[Group], name: str) -> str:
    """How many samples a rate is from, and how exactly it is known."""
    if not groups:
        return ""
    largest = max(
        number(record, name, place(record, J), "se")
        for group in groups for record in group.records for J in STEPS_J
    )  # fmt: skip
    count = samples_note(groups).removesuffix(".")
    return f"{count} and J: standard error of a rate at most {plain(largest, 3)}."


def samples_note(groups: Sequence[Group], *path: str) -> str:
    """How many samples were drawn of each run."""
    counts = sorted({int(n) for group in groups for n in group.values(*path, "samples")})
    return f"{' or '.join(f'{n:,}' for n in counts)} samples per run." if counts else ""

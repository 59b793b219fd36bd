"""The synthetic studies' records for a table: which runs belong together, which are not there.

Runs form one group only where their recipes agree in all but the start: the seed, and whether it
was perturbed by a last bit. Of a group, the runs as drawn may be averaged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from experiments.studies.agreetext import agreetext_recipe
from experiments.studies.catalog import ABLATIONS, STUDIES, Budget
from experiments.studies.recipe import Recipe
from experiments.studies.records import KIND, measured_values, recipe_values, study_of
from lkf_plugin.errors import UserError
from lkf_plugin.records import store
from lkf_plugin.records.record import Record

NOT_RUN = "not run"


@dataclass(frozen=True)
class Group:
    """Records of one recipe.

    Attributes:
        recipe: what they share; its seed is 0 and its start not perturbed, which mean nothing.
        records: in the order of their seeds, those from perturbed starts last.
    """

    recipe: Recipe
    records: tuple[Record, ...]

    @property
    def seeds(self) -> list[int]:
        """The seeds, in the order of the records."""
        return [recipe_of(record).seed for record in self.records]

    @property
    def starts(self) -> str:
        """``seeds 0, 1, 2; seed 0 perturbed``."""
        as_drawn = [recipe_of(r).seed for r in self.records if not perturbed(r)]
        moved = [recipe_of(r).seed for r in self.records if perturbed(r)]
        parts = [name_seeds(as_drawn)] if as_drawn else []
        return "; ".join([*parts, *([f"{name_seeds(moved)} perturbed"] if moved else [])])

    def values(self, *path: str | int) -> list[float]:
        """A metric of each seed; ``path`` as of :func:`number`."""
        return [number(record, *path) for record in self.records]

    def errors(self, *path: str | int) -> list[float]:
        """The standard error of each seed's estimate."""
        return [number(record, *path, "se") for record in self.records]


def read_records(folder: Path) -> dict[str, list[Record]]:
    """Records of every study, by study and then by file name.

    Args:
        folder: holds a folder for each study, as ``docs/records/synthetic`` does.

    Raises:
        UserError: no such folder, or a file there that is no record of its study.
    """
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder: give the one that holds hidden/, parity/, ...")
    records = {study: store.read_records(folder / study) for study in STUDIES}
    for study, own in records.items():
        for record in own:
            if record.kind != KIND or study_of(record) != study:
                raise UserError(
                    f"{folder / study} holds a record of another kind ({record.name}): move it "
                    "to its study's folder."
                )
    return records


def number(record: Record, *path: str | int) -> float:
    """A figure of a record; of an estimate, its value unless the path goes on to ``se``.

    Args:
        record: a record.
        path: keys and places inside what was measured.

    Raises:
        UserError: there is no such metric.
    """
    figure: Any = measured_values(record)
    for step in path:
        try:
            figure = figure[step]
        except (KeyError, IndexError, TypeError) as error:
            raise UserError(
                f"Record {record.name} of {study_of(record)} has no "
                f"{'.'.join(map(str, path))}: remove it and run the study again."
            ) from error
    return float(figure["value"] if isinstance(figure, Mapping) else figure)


def place(record: Record, J: int) -> int:
    """Where a record's lists over the sampling steps hold J.

    Raises:
        UserError: nothing was measured at J.
    """
    steps: list[int] = record.series.get("J", [])
    if J not in steps:
        raise UserError(
            f"Record {record.name} of {study_of(record)} has no J={J}: "
            "remove it and run the study again."
        )
    return steps.index(J)


def perturbed(record: Record) -> bool:
    """Whether the run started from weights moved by one last bit."""
    return bool((recipe_values(record) or {}).get("perturb", False))


def recipe_of(record: Record) -> Recipe:
    """The training run behind a record.

    Raises:
        UserError: the record names no recipe of this version.
    """
    try:
        return Recipe(**(recipe_values(record) or {"recipe": None}))
    except TypeError as error:
        raise UserError(
            f"Record {record.name} of {study_of(record)} has no recipe of this version: "
            "remove it and run the study again."
        ) from error


def group_runs(records: Iterable[Record]) -> list[Group]:
    """Groups of runs, by components, then form, ties and steps.

    Raises:
        UserError: two records of one recipe and seed, which would count it twice.
    """
    by_recipe: dict[Recipe, dict[tuple[bool, int], Record]] = {}
    for record in records:
        recipe = recipe_of(record)
        starts = by_recipe.setdefault(replace(recipe, seed=0, perturb=False), {})
        start = (recipe.perturb, recipe.seed)
        if start in starts:
            raise UserError(
                f"Records {starts[start].name} and {record.name} of {study_of(record)} "
                "are of one run: remove one."
            )
        starts[start] = record
    groups = [Group(r, tuple(starts[s] for s in sorted(starts))) for r, starts in by_recipe.items()]
    return sorted(groups, key=lambda g: (g.recipe.components, g.recipe.form, g.recipe.ties,
                                         g.recipe.steps, g.recipe.digest))  # fmt: skip


def planned(study: str) -> list[Recipe]:
    """The recipes of a study's default plan."""
    return [cell.recipe for cell in STUDIES[study](Budget()) if cell.recipe is not None]


def with_gaps(
    study: str, groups: Sequence[Group], key: Callable[[Recipe], Hashable]
) -> list[tuple[Recipe, Group | None]]:
    """Rows of a table: every group, and (recipe, None) for what is planned and has none.

    Args:
        study: whose default plan is meant.
        groups: what was measured.
        key: of the planned recipes, those with the key of a group are no gap.
    """
    plan: dict[Hashable, Recipe] = {}
    for recipe in planned(study):
        plan.setdefault(key(recipe), recipe)
    by_key: dict[Hashable, list[Group]] = {}
    for group in groups:
        by_key.setdefault(key(group.recipe), []).append(group)
    rows: list[tuple[Recipe, Group | None]] = []
    for one in dict.fromkeys([*plan, *by_key]):
        rows += [(group.recipe, group) for group in by_key.get(one, [])] or [(plan[one], None)]
    return rows


def spread(values: Sequence[float], digits: int, alone: str = " (1 seed)") -> str:
    """Mean ± standard deviation over seeds.

    Args:
        values: one per seed.
        digits: after the point.
        alone: follows the value of a single seed.
    """
    if len(values) == 1:
        return plain(values[0], digits) + alone
    return f"{plain(mean(values), digits)} ± {plain(stdev(values), digits)}"


def plain(value: float, digits: int) -> str:
    """A number of so many digits, without a sign where it rounds to zero."""
    return f"{round(value, digits) + 0.0:.{digits}f}"


def changes(recipe: Recipe) -> str:
    """What a recipe has unlike its study's own, apart from form and ties."""
    M, steps, seed = recipe.components, recipe.steps, recipe.seed
    own = Recipe(recipe.corpus, M, steps, seed)
    if recipe.corpus == "agreetext":
        own = agreetext_recipe(M, steps, seed)
    usual: dict[str, Any] = {**dataclasses.asdict(own), "form": recipe.form, "ties": recipe.ties}
    actual = dataclasses.asdict(recipe)
    return ", ".join(f"{name}={actual[name]}" for name in actual if actual[name] != usual[name])


def ablation(recipe: Recipe) -> str:
    """The label of an ablation's recipe; what it changes, where the catalog names no such one."""
    for label, changed in ABLATIONS.items():
        if replace(Recipe(steps=recipe.steps, seed=recipe.seed), **changed) == recipe:
            return label
    return describe(recipe)


def name_ablation(recipe: Recipe) -> str:
    """An ablation's label and steps."""
    return f"{ablation(recipe)} ({recipe.steps} steps)"


def describe(recipe: Recipe) -> str:
    """A recipe without its seed, e.g. ``M=16 (700 steps, split)``."""
    parts = [
        f"{recipe.steps} steps",
        "learned form" if recipe.form == "learned" else "",
        "" if recipe.ties == "none" else recipe.ties,
        changes(recipe),
    ]
    return f"M={recipe.components} ({', '.join(part for part in parts if part)})"


def name_seeds(seeds: Sequence[int]) -> str:
    """``seed 0`` or ``seeds 0, 1, 2``."""
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"


def origin(records: Iterable[Record]) -> str:
    """Machines and torch versions behind records, as one sentence."""
    machines = []
    for record in records:
        machine = record.machine
        threads = f"{machine['threads']} thread" + ("s" if machine["threads"] != 1 else "")
        cpu = f"{machine['cpu']}, {machine['cores']} cores, {threads}"
        gpu = [str(machine["gpu"])] if machine["gpu"] else []
        torch = f"torch {record.libraries['torch']}"
        machines.append(", ".join([*gpu, cpu, str(machine["system"]), torch]))
    return f"Machine: {'; '.join(dict.fromkeys(machines))}."


def note(groups: Sequence[Group], label: Callable[[Recipe], str] = describe) -> str:
    """The line under a table: seeds, steps and machine of what stands in it."""
    if not groups:
        return "Not run yet."
    by_seeds: dict[str, list[str]] = {}
    for group in groups:
        by_seeds.setdefault(name_seeds(group.seeds), []).append(label(group.recipe))
    runs = "; ".join(f"{seeds}: {', '.join(labels)}" for seeds, labels in by_seeds.items())
    where = origin(record for group in groups for record in group.records)
    return f"{runs[0].upper()}{runs[1:]}. {where}"


def missing(records: Mapping[str, Sequence[Record]]) -> str:
    """A Markdown list: by study, the cells of the default plan that have no record."""
    lines = []
    for study, cells in STUDIES.items():
        there = {recipe_of(r) if recipe_values(r) else r.name for r in records[study]}
        absent: dict[str, list[int]] = {}
        plan = sorted(cells(Budget()), key=lambda c: c.recipe.components if c.recipe else 0)
        for cell in plan:
            if (cell.recipe or cell.name) in there:
                continue
            if cell.recipe is None:
                absent[cell.name] = []
            else:
                label = name_ablation if study == "ablations" else describe
                absent.setdefault(label(cell.recipe), []).append(cell.recipe.seed)
        if absent:
            shown = [f"{label}, {name_seeds(s)}" if s else label for label, s in absent.items()]
            lines.append(f"* `{study}`: {'; '.join(shown)}.")
    return "\n".join(lines) or "Nothing: every cell of the default plan has its record."

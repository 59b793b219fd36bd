"""What distillation gained on AgreeText: valid texts and diversity for what the training cost.

Cost is counted in training steps of an MDLM on its own batch: a step of training is three passes of
the network over each sequence (forward, and backward as two), a teacher's call is one. What was
trained before, a teacher or a start, is not in it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.paper.scales import SCALES, Corpus
from experiments.runner import compose_settings
from experiments.tables.lookup import Lookup
from experiments.tables.main_table import MainRow, main_rows
from experiments.tables.row_entries import SINGLE
from lkf_plugin.evaluate.quality import VALID
from lkf_plugin.evaluate.run_records import OWN
from lkf_plugin.records.markdown import markdown_table
from lkf_plugin.records.store import read_records

STEPS_J = (1, 2, 4, 8)
AT = 4  # J at which entropies and gains are told
PASSES = 3  # of a training step
ORDER = ("mdlm", "sdtt", "di4c", "duo", "dcd", "redi", "lkf", "sdtt_lkf")
TEACHER = {"sdtt": "mdlm", "di4c": "sdtt", "redi": "duo", "dcd": "duo", "sdtt_lkf": "lkf"}
CONFIGURATIONS = "configuration_entropy"


def sequence_passes(method: str, settings: Any, steps: int, rounds: int) -> float:
    """Passes of a network over one sequence that ``steps`` steps in ``rounds`` rounds cost."""
    batch, given = settings.loader.global_batch_size, settings.method
    if method in ("sdtt", "sdtt_lkf"):
        return steps * batch * (PASSES + 2)
    if method == "dcd":
        return steps * batch * (PASSES + 1)
    if method == "di4c":  # N latents; the first teacher has none
        later = steps * (rounds - 1) / rounds * given.latents + steps / rounds
        return batch * (steps * (PASSES + 1) * given.latents + later)
    if method == "redi":
        return steps * batch * PASSES + rounds * given.pairs * (given.generation_steps + 1)
    return steps * batch * PASSES


def cost(corpus: Corpus, model: str, unit: str = "mdlm") -> float:
    """Training of a row in steps of the ``unit``'s.

    Args:
        corpus: with the recipes.
        model: as ``Corpus.models`` names it.
        unit: whose step is one.
    """
    name = corpus.recipe_of(model)
    recipe = corpus.recipes[name]
    settings, of_unit = (compose_settings(corpus.recipes[one].overrides) for one in (name, unit))
    number = int(model.rpartition("-r")[2]) if recipe.rounds else 0
    share = number / recipe.rounds if recipe.rounds else 1
    steps = round(settings.trainer.max_steps * share)
    method = name.partition("-M")[0]
    passes = sequence_passes(method, settings, steps, number)
    return passes / (PASSES * of_unit.loader.global_batch_size)


def students(records: Path) -> dict[str, str]:
    """The block ``students`` of docs/baselines.md.

    Args:
        records: folder with ``tables/agreetext``, a copy of the records of the scale ``tiny``.
    """
    (corpus,) = (one for one in SCALES["tiny"] if one.name == "agreetext")
    lookup = Lookup(read_records(records / "tables" / "agreetext"))
    return {"students": render(corpus, lookup)}


def render(corpus: Corpus, lookup: Lookup) -> str:
    """A line for each student, and for each that taught one."""
    lines, shown = [], _shown(corpus, lookup)
    for model, row in shown.items():
        taught_by = TEACHER.get(row.model.partition("-r")[0])
        spent = cost(corpus, model)
        valid = [_figure(lookup, row, J, VALID) for J in STEPS_J]
        line = [row.label, f"{spent:.0f}", *(_text(one) for one in valid)]
        line += [_entropies(lookup, row)]
        gain = ""
        if taught_by is not None:
            teacher = [one for name, one in shown.items() if _taught(name, one, taught_by)][-1]
            before, now = (_figure(lookup, one, AT, VALID) for one in (teacher, row))
            if before and now:
                gain = f"{(now[0] - before[0]) / spent * 100:+.3f}"
        lines.append([*line, gain])
    columns = [f"valid, J={J}" for J in STEPS_J]
    return markdown_table(
        [
            "row", "cost, MDLM steps", *columns,
            f"J={AT}: pooled entropy / of configurations (perfect)",
            f"gain at J={AT} for 100 MDLM steps",
        ],
        lines,
    )  # fmt: skip


def _shown(corpus: Corpus, lookup: Lookup) -> dict[str, MainRow]:
    """Model -> its row of single chains, each teacher before its students."""
    rows = {}
    for row in main_rows(lookup):
        method, _, number = row.model.partition("-r")
        end = f"-r{number}" if number else ""
        model = f"M{row.M}" if method == "lkf" else f"{method}-M{row.M}{end}"
        model = f"{method}{end}" if row.M == 1 and method != "lkf" else model
        wanted = method in ORDER and (method != "lkf" or row.M == 8)
        if model in corpus.models and wanted and row.row in (OWN, SINGLE):
            rows[model] = row
    return dict(sorted(rows.items(), key=lambda one: ORDER.index(one[1].model.partition("-r")[0])))


def _taught(name: str, row: MainRow, teacher: str) -> bool:
    return name == "M8" if teacher == "lkf" else row.model.partition("-r")[0] == teacher


def _figure(
    lookup: Lookup, row: MainRow, J: int, metric: str
) -> tuple[float, float | None, int] | None:
    """(mean, deviation, trainings) of a metric; None where it was not measured."""
    trained = lookup.over_seeds(lookup.find(row.M, row.row, J, row.model), metric)
    return None if trained is None else (trained.mean.value, trained.deviation, trained.mean.n or 1)


def _text(figure: tuple[float, float | None, int] | None) -> str:
    if figure is None:
        return ""
    mean, deviation, _ = figure
    return f"{mean:.3f}" + ("" if deviation is None else f" ± {deviation:.3f}")


def _entropies(lookup: Lookup, row: MainRow) -> str:
    names = ("pooled_entropy", CONFIGURATIONS, f"{CONFIGURATIONS}_of_as_many_perfect")
    pooled, spread, perfect = (_figure(lookup, row, AT, name) for name in names)
    if pooled is None:
        return ""
    first = f"{pooled[0]:.2f}"
    return first if spread is None or perfect is None else (
        f"{first} / {spread[0]:.2f} ({perfect[0]:.2f})"
    )  # fmt: skip

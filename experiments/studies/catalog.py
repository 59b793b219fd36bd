"""The studies by name: which runs each needs, what it measures, what it prints.

A study is a list of cells; a cell is a recipe and a measurement. Runs are shared between studies
(the folder of a run is a function of its recipe), records are kept by study.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from experiments.studies.agreetext import agreetext_recipe, measure_agreetext
from experiments.studies.measures import (
    measure_excess,
    measure_likelihood,
    measure_modes,
    measure_probe,
    measure_support,
)
from experiments.studies.recipe import Recipe, make_corpus
from experiments.studies.records import find_recorded, write_measured
from experiments.studies.theory import measure_theory
from experiments.studies.training import train
from lkf_plugin.errors import UserError
from lkf_plugin.progress import bar, say
from lkf_plugin.records.record import Record

COMPONENTS = (1, 2, 4, 8, 16)
# steps that were enough for the targets; a step costs about M times as much
STEPS = {
    "hidden": {1: 1500, 2: 1000, 4: 1000, 8: 700, 16: 700},
    "parity": {1: 1500, 2: 500, 4: 500, 8: 300, 16: 300},
    "agreetext": {1: 900, 2: 1000, 4: 1000, 8: 1500, 16: 1000},
}
LONG = 1000
ABLATION_STEPS = 150
PAPER_STEPS = 30_000
ABLATIONS: Mapping[str, Mapping[str, Any]] = {
    "base": {},
    "no regulariser": {"lambda_ent": 0.0, "lambda_lb": 0.0},
    "lambda_ent only": {"lambda_lb": 0.0},
    "lambda_lb only": {"lambda_ent": 0.0},
    "lambda_lb +.1": {"lambda_lb": 0.1},
    "embedding std .02": {"latent_emb_std": 0.02},
    "embedding std .2": {"latent_emb_std": 0.2},
    "FiLM std 0": {"latent_film_std": 0.0},
    "FiLM std .2": {"latent_film_std": 0.2},
}
BLOCKS: Mapping[str, Mapping[str, Any]] = {
    "tree": {"latent": "tree", "ties": "none", "block_components": 2, "block_length": 4},
    "chain": {
        "latent": "chain", "ties": "none", "components": 1, "block_components": 8,
        "lambda_ent": 0.02, "lambda_lb": 0.0, "sticky": 6.0,
    },
}


@dataclass(frozen=True)
class Budget:
    """How much of everything.

    Attributes:
        seeds: 0, 1, ..., this many.
        steps: of every run, or None for each study's own.
        short: fewer cells, and of runs longer than ``LONG`` steps three quarters (``LONG`` at
            least). The targets are asked of the full steps; AgreeText's M = 8 misses one of its
            own at 1,000 steps with one seed of three.
        perturb: seed 0 once more, from weights moved by one unit in the last place.
    """

    seeds: int = 3
    steps: int | None = None
    short: bool = False
    perturb: bool = False

    @property
    def starts(self) -> list[tuple[int, bool]]:
        """(seed, whether it is perturbed) of every run of a recipe."""
        return [*((seed, False) for seed in range(self.seeds)), *([(0, True)] * self.perturb)]

    def steps_for(self, corpus: str, components: int) -> int:
        """Training steps of one run."""
        own = STEPS[corpus][components]
        shorter = max(own * 3 // 4, min(own, LONG))
        return self.steps or (shorter if self.short else own)


@dataclass(frozen=True)
class Cell:
    """One record to be."""

    name: str
    recipe: Recipe | None
    measure: Callable[[Any, Any, Any], Mapping[str, Any]]


def sweep_recipe(
    corpus: str, components: int, seed: int, budget: Budget, perturb: bool = False
) -> Recipe:
    """A run of the M sweep; ties are broken where there can be any."""
    steps = budget.steps_for(corpus, components)
    if corpus == "agreetext":
        return replace(agreetext_recipe(components, steps, seed), perturb=perturb)
    ties = "split" if corpus == "hidden" and components > 1 else "none"
    return Recipe(corpus, components, steps, seed, ties=ties, perturb=perturb)


def _sweep(corpus: str, measure: Any, components: tuple[int, ...]) -> Any:
    def cells(budget: Budget) -> Iterator[Cell]:
        chosen = components
        if budget.short and len(components) > 2:
            chosen = (1, 8) if corpus == "agreetext" else (1, 4, 16)
        for seed, perturb in budget.starts:
            for M in chosen:
                recipe = sweep_recipe(corpus, M, seed, budget, perturb)
                yield Cell(recipe.name, recipe, measure)

    return cells


def _learned_too(budget: Budget) -> Iterator[Cell]:
    """Hidden agreement's sweep, and M = 1 in the learned form."""
    yield from _sweep("hidden", measure_likelihood, COMPONENTS)(budget)
    for seed, perturb in () if budget.short else budget.starts:
        steps = budget.steps or 3000
        recipe = Recipe("hidden", 1, steps, seed, form="learned", perturb=perturb)
        yield Cell(recipe.name, recipe, measure_likelihood)


def _ablations(budget: Budget) -> Iterator[Cell]:
    steps = budget.steps or ABLATION_STEPS
    for seed in range(min(budget.seeds, 2)):
        for label, changes in ABLATIONS.items():
            recipe = replace(Recipe(steps=steps, seed=seed), **changes)
            name = f"{label.replace(' ', '_').replace('+', 'plus')}-s{seed}-n{steps}"
            yield Cell(name, recipe, measure_likelihood)


def _structures(budget: Budget) -> Iterator[Cell]:
    """Corpora that one latent per sequence suffices for, by structures that have more."""
    for corpus in ("hidden", "parity"):
        for seed, perturb in budget.starts:
            sequence = sweep_recipe(corpus, 8, seed, budget, perturb)
            alike = replace(sequence, ties="none")  # nothing more is done about ties in blocks
            blocks = (replace(sequence, **more) for more in BLOCKS.values())
            for recipe in dict.fromkeys((sequence, alike, *blocks)):
                yield Cell(recipe.name, recipe, measure_excess)


def _ties(budget: Budget) -> Iterator[Cell]:
    steps = budget.steps_for("hidden", 16)
    for seed, perturb in budget.starts:
        for ties in ("none", "split") if budget.short else ("none", "anneal", "balance", "split"):
            recipe = Recipe(steps=steps, seed=seed, ties=ties, perturb=perturb)
            yield Cell(recipe.name, recipe, measure_likelihood)


def _theory(budget: Budget) -> Iterator[Cell]:
    yield Cell("theorems", None, lambda *_: measure_theory())


def _agreetext(backbone: Any, corpus: Any, recipe: Recipe) -> Mapping[str, Any]:
    return measure_agreetext(backbone, recipe)


STUDIES: dict[str, Callable[[Budget], Iterator[Cell]]] = {
    "theory": _theory,
    "hidden": _learned_too,
    "parity": _sweep("parity", measure_likelihood, COMPONENTS),
    "probe": _sweep("hidden", measure_probe, (16,)),
    "modes": _sweep("hidden", measure_modes, (16,)),
    "support": _sweep("hidden", measure_support, (1, 4, 16)),
    "ablations": _ablations,
    "ties": _ties,
    "structures": _structures,
    "agreetext": _sweep("agreetext", _agreetext, (1, 2, 4, 8, 16)),
}


def run_study(study: str, budget: Budget, root: Path, quiet: bool = False) -> list[Record]:
    """Trains and measures what is not there yet; returns the study's records.

    Raises:
        UserError: unknown study.
    """
    if study not in STUDIES:
        raise UserError(f"study {study} is unknown: take one of {', '.join(STUDIES)}, or all.")
    records = []
    for cell in bar(list(STUDIES[study](budget)), study, "cell", keep=True, shown=not quiet):
        record = find_recorded(root, study, cell.recipe)
        if record is None:
            if not quiet:
                say(f"{study}: {cell.name}")
            measured = _measured(cell, root, quiet)
            record = write_measured(root, study, cell.name, cell.recipe, measured)
        records.append(record)
    return records


def _measured(cell: Cell, root: Path, quiet: bool) -> Mapping[str, Any]:
    """What a cell measures of its run, which is trained first where it has one."""
    if cell.recipe is None:
        return cell.measure(None, None, None)
    trainer = train(cell.recipe, root, quiet)
    with torch.no_grad():
        measured = cell.measure(trainer.finished(), make_corpus(cell.recipe.corpus), cell.recipe)
    return {**measured, "splits": len(trainer.splits)}

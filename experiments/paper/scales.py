"""Sizes at which the tables are made: the paper's, a workstation's, and two CPU cores'."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from experiments.paper.plan import TABLES, named
from experiments.recipes import AGREETEXT, SOTU, Recipe, paper
from experiments.runner import Run, compose_settings
from lkf_plugin.evaluate.run_records import FIRST_SEED

LATENT = "lkf-"  # begins the recipes of latent-kernel models


@dataclass(frozen=True)
class Corpus:
    """Models and cells on one corpus.

    Attributes:
        name: of the run folders.
        recipes: of the models by name.
        grid: J.
        samples: a cell.
        sequences: held-out sequences of the likelihood.
        judge: None where the corpus has a grammar.
        judged_chains: chains per component that the judge hears alone.
        self_bleu: texts in self-BLEU.
        batch_size: samples decoded at once.
        seeds: trainings of each model of the main table.
        main_only: latent-kernel models that only the main table has, ``M4``.
        tables: which of the paper's tables are made.
    """

    name: str
    recipes: Mapping[str, Recipe]
    grid: tuple[int, ...]
    samples: int
    sequences: int
    judge: str | None
    judged_chains: int | None
    self_bleu: int
    batch_size: int
    seeds: tuple[int, ...] = (FIRST_SEED,)
    main_only: tuple[str, ...] = ()
    tables: tuple[str, ...] = TABLES

    @property
    def models(self) -> list[str]:
        """What is measured: ``M8``, ``sedd``, and of a method with rounds each: ``sdtt-r2``."""
        names = []
        for name, recipe in self.recipes.items():
            ends = [f"-r{number + 1}" for number in range(recipe.rounds)] or [""]
            names += [name.removeprefix(LATENT) + end for end in ends]
        return names

    def recipe_of(self, model: str) -> str:
        """The name of the recipe that trains a model."""
        name, _, number = model.rpartition("-r")
        plain = name if number.isdigit() and name in self.recipes else model
        return plain if plain in self.recipes else LATENT + plain

    def run(self, out: Path, model: str, seed: int = FIRST_SEED) -> Run:
        """The training run of a model."""
        return self._run(out, self.recipe_of(model), seed)

    def _run(self, out: Path, name: str, seed: int) -> Run:
        recipe = self.recipes[name]
        label = named(name.removeprefix(LATENT), seed)
        return Run(
            label=f"{self.name} {label}",
            folder=out / "runs" / self.name / label,
            overrides=(*recipe.overrides, *([] if seed == FIRST_SEED else [f"seed={seed}"])),
            start=self._run(out, recipe.start, seed) if recipe.start else None,
            teacher=self._run(out, recipe.teacher, seed) if recipe.teacher else None,
        )

    def checkpoint(self, out: Path, model: str, seed: int = FIRST_SEED) -> str | None:
        """The checkpoint that is measured: the end of a round, or None, the run's best."""
        number = model.rpartition("-r")[2]
        recipe = self.recipes[self.recipe_of(model)]
        if not recipe.rounds:
            return None
        run = self.run(out, model, seed)
        steps = compose_settings(run.overrides).trainer.max_steps // recipe.rounds
        return str(run.best.with_name(f"step-{steps * int(number)}.ckpt"))


PAPER_GRID = (1, 2, 4, 8, 16, 32)
PAPER_ROWS = ("mdlm", "sedd", "sdtt", "di4c", "duo", "dcd", "redi", "ar")


def _paper(name: str, rows: tuple[str, ...]) -> Corpus:
    """The paper's recipe is ``configs/experiment/NAME_lkf.yaml``, and nowhere else."""
    return Corpus(
        name=name,
        recipes=paper(name, (*rows, "lkf-M1", "lkf-M4", "lkf-M8")),
        grid=PAPER_GRID,
        samples=512,
        sequences=2048,
        judge="gpt2-large",
        judged_chains=None,
        self_bleu=100,
        batch_size=64,
    )


def _tiny(recipes: Mapping[str, Recipe], steps: Mapping[str, int]) -> dict[str, Recipe]:
    """Recipes with fewer steps where some are given."""
    return {
        name: recipe.of_steps(steps[name]) if name in steps else recipe
        for name, recipe in recipes.items()
    }


SCALES: dict[str, tuple[Corpus, ...]] = {
    "paper": (_paper("lm1b", PAPER_ROWS), _paper("wikitext103", ("mdlm", "sedd", "duo"))),
    "small": (
        Corpus(
            name="sotu",
            recipes=SOTU,
            grid=PAPER_GRID,
            samples=256,
            sequences=512,
            judge="smollm2",
            judged_chains=64,
            self_bleu=100,
            batch_size=32,
        ),
    ),
    "tiny": (
        Corpus(
            name="agreetext",
            recipes=_tiny(AGREETEXT, {"ar": 300, "mdlm": 700, "sedd": 700, "duo": 1500}),
            grid=PAPER_GRID,
            samples=96,
            sequences=256,
            judge=None,
            judged_chains=None,
            self_bleu=32,
            batch_size=96,
            seeds=(1, 2, 3),
        ),
        # A quarter of experiment=sotu, so that its text is worse than in docs/baselines.md.
        Corpus(
            name="sotu",
            recipes=_tiny(
                SOTU,
                {
                    **dict.fromkeys(("ar", "mdlm", "sedd", "duo", "lkf-M1"), 400),
                    **dict.fromkeys(("lkf-M4", "lkf-M8"), 100),
                },
            ),
            grid=(4, 16),
            samples=16,
            sequences=128,
            judge="smollm2",
            judged_chains=4,
            self_bleu=16,
            batch_size=16,
            main_only=("M4",),
        ),
    ),
}

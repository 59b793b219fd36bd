"""Names of runs are unique by recipe; a record stays its recipe's when recipes gain a field."""

from __future__ import annotations

from dataclasses import asdict, replace

from experiments.studies.recipe import Recipe
from experiments.studies.records import study_record
from experiments.studies.runs import recipe_of


def test_records_from_before_a_field_keep_their_recipe() -> None:
    recipe = Recipe(steps=700, seed=0, ties="split")
    values = asdict(recipe)
    del values["perturb"]
    now = study_record("ties", recipe.name, recipe, {"excess": 0.1}, "0", {}, {})
    assert recipe_of(replace(now, subject={"recipe": values})) == recipe_of(now) == recipe


def test_every_field_makes_another_run() -> None:
    base = Recipe()
    changes = {"seed": 1, "lr": 1e-3, "ema": 0.9, "latent_blocks": 2, "width": 32}
    names = {replace(base, **{key: value}).name for key, value in changes.items()}
    assert len(names | {base.name}) == len(changes) + 1


def test_latent_blocks_reach_the_network() -> None:
    assert Recipe(latent_blocks=2).model()["latent_blocks"] == 2

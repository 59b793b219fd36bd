"""Names of runs: unique by recipe, and stable when a recipe gains a field."""

from __future__ import annotations

from dataclasses import replace

from experiments.studies.recipe import Recipe


def test_names_of_kept_records_stay() -> None:
    kept = Recipe(steps=700, seed=0, ties="split")
    assert kept.name == "hidden-M16-n700-s0-2d361b0136"


def test_every_field_makes_another_run() -> None:
    base = Recipe()
    changes = {"seed": 1, "lr": 1e-3, "ema": 0.9, "latent_blocks": 2, "width": 32}
    names = {replace(base, **{key: value}).name for key, value in changes.items()}
    assert len(names | {base.name}) == len(changes) + 1


def test_latent_blocks_reach_the_network() -> None:
    assert Recipe(latent_blocks=2).model()["latent_blocks"] == 2

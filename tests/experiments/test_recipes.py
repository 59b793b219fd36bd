"""Every recipe of every scale is a command that is accepted."""

from __future__ import annotations

import pytest

from experiments.paper.scales import SCALES
from experiments.runner import compose_settings
from lkf_plugin.config.validate import validate

RECIPES = [
    (scale, index, name)
    for scale, corpora in SCALES.items()
    for index, corpus in enumerate(corpora)
    for name in corpus.recipes
]


@pytest.mark.parametrize(("scale", "index", "name"), RECIPES)
def test_a_recipe_is_a_command_that_is_accepted(scale: str, index: int, name: str):
    recipe = SCALES[scale][index].recipes[name]
    teacher = ["method.teacher=teacher.ckpt"] if recipe.teacher else []
    config = compose_settings([*recipe.overrides, *teacher, "run_dir=x"])
    validate(config, "builtin")
    if recipe.rounds:
        assert config.method.rounds == recipe.rounds
        assert config.trainer.max_steps % recipe.rounds == 0

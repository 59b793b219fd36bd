"""The start moved by one last bit: what moves, by how much, and that it is another run."""

from __future__ import annotations

from dataclasses import replace

import torch

from experiments.studies.catalog import STUDIES, Budget
from experiments.studies.perturbation import PerturbStart, perturb_last_bit, perturbed_start
from experiments.studies.recipe import Recipe
from experiments.studies.training import Trainer

TINY = Recipe("hidden", 3, 30, 0, width=16, warmup=2, batch=8)


def bits(weight: torch.Tensor) -> torch.Tensor:
    """float32 as integers: neighbours of one sign differ by one."""
    return weight.view(torch.int32)


def test_every_weight_moves_by_one_unit_in_the_last_place_and_zeros_stay():
    before = torch.cat([torch.randn(2000, generator=torch.Generator().manual_seed(0)),
                        torch.zeros(5), torch.tensor([1.0, -1.0, 1e-30])])  # fmt: skip
    after = before.clone()
    perturb_last_bit([after], seed=3)
    moved = bits(after) - bits(before)
    assert torch.equal(moved == 0, before == 0)
    assert torch.equal(moved.abs() == 1, before != 0)
    assert 900 < (moved > 0).sum() < 1100  # a fair coin
    again, other = before.clone(), before.clone()
    perturb_last_bit([again], seed=3)
    perturb_last_bit([other], seed=4)
    assert torch.equal(after, again) and not torch.equal(after, other)


def test_perturbed_recipe_starts_beside_the_other_and_draws_the_same_rows():
    drawn, moved = Trainer(TINY), Trainer(replace(TINY, perturb=True))
    pairs = list(zip(drawn.backbone.parameters(), moved.backbone.parameters(), strict=True))
    assert all((bits(a) - bits(b)).abs().max() <= 1 for a, b in pairs)
    assert any(not torch.equal(a, b) for a, b in pairs)
    one, two = drawn.train_step(), moved.train_step()
    assert abs(one - two) < 1e-4  # the same rows and noise
    assert drawn.recipe.folder != moved.recipe.folder and "perturbed" in moved.recipe.name


def test_budget_adds_seed_0_once():
    cells = list(STUDIES["parity"](Budget(seeds=2, perturb=True)))
    starts = [(c.recipe.seed, c.recipe.perturb) for c in cells if c.recipe.components == 4]
    assert starts == [(0, False), (1, False), (0, True)]


def test_callback_moves_a_fresh_run_only():
    class Standing:
        global_step = 0

    module = torch.nn.Linear(4, 4)
    before = module.weight.detach().clone()
    callback = PerturbStart(seed=1)
    callback.on_train_start(Standing(), module)
    after = module.weight.detach().clone()
    assert (bits(after) - bits(before)).abs().eq(1).all()
    Standing.global_step = 7
    callback.on_train_start(Standing(), module)
    assert torch.equal(module.weight, after)
    assert perturbed_start(1)[0].endswith("studies.perturbation.PerturbStart")

"""Split and merge, and balanced responsibilities, on mixtures made by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from experiments.studies.recipe import Recipe
from experiments.studies.ties import (
    Balance,
    SplitPlan,
    apply_split,
    first_step_mixture,
    merge_losses,
    plan_split,
    regularizer_scale,
    sinkhorn,
)
from experiments.studies.training import Trainer
from lkf_plugin.corpora.hidden_agreement import HiddenAgreement
from lkf_plugin.information.laws import network_law
from lkf_plugin.information.product_mixture import ProductMixture

V, L = 4, 5
CORPUS = HiddenAgreement(values=V, length=L)


def owners(groups: list[list[int]], weights: list[float]) -> ProductMixture:
    """Component k is uniform over the values of group k, with a little of everything."""
    prob_MV = torch.full((len(groups), V + 1), 1e-4, dtype=torch.float64)
    for row, group in zip(prob_MV, groups, strict=True):
        row[group] = 1.0 / len(group)
    prob_MV /= prob_MV.sum(-1, keepdim=True)
    logw = torch.tensor(weights, dtype=torch.float64).log()
    return ProductMixture(logw, prob_MV.log()[:, None].expand(-1, L, -1))


DUPLICATE = owners([[0], [0], [1], [2, 3]], [0.125, 0.125, 0.25, 0.5])
PERFECT = owners([[0], [1], [2], [3]], [0.25] * 4)


def test_the_duplicate_goes_to_the_component_with_two_values():
    plan = plan_split(DUPLICATE, CORPUS.sample(800, 0), seed=0)
    assert plan is not None
    assert {plan.kept, plan.freed} == {0, 1}
    assert plan.divided == 3
    # half the rows gain (L - 1) log 2 each
    assert plan.gain == pytest.approx(0.5 * (L - 1) * math.log(2), rel=0.15)
    assert set(plan.halves.logq_MLV[:, 0].argmax(-1).tolist()) == {2, 3}


def test_nothing_to_gain_nothing_done():
    assert plan_split(PERFECT, CORPUS.sample(800, 0), seed=0) is None


def test_a_uniform_law_is_not_split():
    """Parity's optimum: the gain is judged on rows that were not fitted to."""
    uniform = owners([[0, 1, 2, 3]] * 3, [1 / 3] * 3)
    x = torch.randint(V, (800, L), generator=torch.Generator().manual_seed(0))
    assert plan_split(uniform, x, seed=0) is None


def test_merging_duplicates_is_free_and_others_are_not():
    x = CORPUS.sample(400, 0)
    plain, averaged = (loss.mean(-1) for loss in merge_losses(DUPLICATE, x))
    assert plain[0, 1].item() == pytest.approx(0.0, abs=1e-9)
    assert averaged[0, 1].item() == pytest.approx(0.0, abs=1e-9)
    assert bool(torch.isinf(plain.diagonal()).all() and torch.isinf(averaged.diagonal()).all())
    # two owners of a value each: in their average half the rows lose (L - 1) log 2, and a quarter
    # loses far more if one of the two has to do for both
    plain, averaged = (loss.mean(-1) for loss in merge_losses(PERFECT, x))
    assert averaged[0, 1].item() == pytest.approx(0.5 * (L - 1) * math.log(2), rel=0.2)
    assert plain[0, 1].item() > 1.5 * averaged[0, 1].item()


def test_small_shares_are_merged_into_their_average():
    """7, 6, 2 and 1 values: a merger that leaves the kept component as it is always loses."""
    values, length = 16, 8
    corpus = HiddenAgreement(values=values, length=length)
    sizes, groups = (7, 6, 2, 1), []
    for size in sizes:
        start = sum(map(len, groups))
        groups.append(list(range(start, start + size)))
    prob_MV = torch.full((4, values + 1), 1e-4, dtype=torch.float64)
    for row, group in zip(prob_MV, groups, strict=True):
        row[group] = 1.0 / len(group)
    logq_MV = (prob_MV / prob_MV.sum(-1, keepdim=True)).log()
    logw_M = (torch.tensor(sizes, dtype=torch.float64) / values).log()
    trap = ProductMixture(logw_M, logq_MV[:, None].expand(-1, length, -1))
    plan = plan_split(trap, corpus.sample(4096, 0), seed=0)
    assert plan is not None and plan.merged_LV is not None
    assert {plan.kept, plan.freed} == {2, 3} and plan.divided in (0, 1)
    # 2 log 2 becomes 3 log 3; 7 values become at best 4 and 3, 6 at best 3 and 3
    cost = (length - 1) * (3 * math.log(3) - 2 * math.log(2)) / values
    best = (length - 1) * (7 * math.log(7) - 4 * math.log(4) - 3 * math.log(3)) / values
    assert 0.5 < plan.gain < 1.1 * (best - cost)
    merged_LV = plan.merged_LV.exp()
    assert torch.allclose(merged_LV[:, 13:16], torch.full((length, 3), 1 / 3).double(), atol=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_equal_shares_are_left_alone(seed):
    """Mergers and splits that would undo each other are not worth a move."""
    equal = owners([[0, 1], [2, 3]], [0.5, 0.5])
    assert plan_split(equal, CORPUS.sample(4096, seed), seed) is None


def test_apply_split_makes_the_two_halves():
    trainer = Trainer(Recipe("hidden", 3, 100, 0, width=16))
    trainer.train_step()
    law = network_law(trainer.backbone)
    before = first_step_mixture(trainer.backbone, law, 8)
    logq_2LV = torch.full((2, 8, 17), math.log(1e-4), dtype=torch.float64)
    logq_2LV[0, :, 5] = logq_2LV[1, :, 9] = math.log(1 - 16e-4)
    halves = ProductMixture(torch.tensor([0.5, 0.5], dtype=torch.float64).log(), logq_2LV)
    plan = SplitPlan(kept=0, freed=1, divided=2, gain=1.0, halves=halves)
    apply_split(trainer.backbone, trainer.optimizer, plan, before.logw_M, 8)
    after = first_step_mixture(trainer.backbone, law, 8)
    assert torch.equal(after.logq_MLV[0], before.logq_MLV[0])
    distance = (after.logq_MLV[2].exp() - after.logq_MLV[1].exp()).abs().sum(-1).mean()
    assert distance.item() > 0.01
    w_before, w_after = before.logw_M.exp(), after.logw_M.exp()
    assert w_after[0].item() == pytest.approx((w_before[0] + w_before[1]).item(), abs=1e-5)
    assert w_after[1].item() == pytest.approx(w_before[2].item() / 2, abs=1e-5)
    trainer.train_step()


def test_apply_split_moves_the_kept_one_to_an_average():
    trainer = Trainer(Recipe("hidden", 3, 100, 0, width=16))
    law = network_law(trainer.backbone)
    before = first_step_mixture(trainer.backbone, law, 8)
    target_3LV = torch.full((3, 8, 17), math.log(1e-4), dtype=torch.float64)
    for row, value in enumerate((5, 9, 12)):
        target_3LV[row, :, value] = math.log(1 - 16e-4)
    halves = ProductMixture(torch.tensor([0.5, 0.5], dtype=torch.float64).log(), target_3LV[:2])
    plan = SplitPlan(0, 1, 2, 1.0, halves, merged_LV=target_3LV[2])
    apply_split(trainer.backbone, trainer.optimizer, plan, before.logw_M, 8)
    after = first_step_mixture(trainer.backbone, law, 8).logq_MLV.exp()
    # little as an embedding does in a fresh network, each of the three goes where it should
    gained_MLV = after - before.logq_MLV.exp()[[0, 2, 2]]
    for component, value in ((2, 5), (1, 9), (0, 12)):
        assert gained_MLV[component, :, value].mean().item() > 0.002


def test_sinkhorn_has_both_margins():
    generator = torch.Generator().manual_seed(0)
    gamma = sinkhorn(3 * torch.randn(40, 5, generator=generator, dtype=torch.float64), 300)
    assert torch.allclose(gamma.sum(-1), torch.ones(40, dtype=torch.float64))
    assert torch.allclose(gamma.sum(0), torch.full((5,), 8.0, dtype=torch.float64), atol=1e-3)


def test_balance_waits_for_enough_rows():
    balance = Balance()
    score = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(balance.responsibilities(score), torch.softmax(score, -1))
    for _ in range(3):
        last = balance.responsibilities(score)
    assert not torch.allclose(last, torch.softmax(score, -1), atol=1e-3)
    assert torch.allclose(last.sum(-1), torch.ones(6))


def test_regularizer_scale():
    assert regularizer_scale(0, 100) == 10.0
    assert regularizer_scale(50, 100) == regularizer_scale(99, 100) == 1.0


@pytest.mark.parametrize("ties", ["anneal", "balance", "anneal+balance"])
def test_remedies_change_training(ties):
    plain = Recipe("hidden", 4, 30, 0, width=16, warmup=2)
    losses = []
    for recipe in (plain, replace(plain, ties=ties)):
        trainer = Trainer(recipe)
        for _ in range(8):
            trainer.train_step()
        losses.append(trainer.backbone.latent_emb.weight.detach().clone())
    assert not torch.equal(*losses)

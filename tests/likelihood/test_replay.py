"""Replays are exact: over all strings the likelihoods add up to one."""

from __future__ import annotations

import pytest
import torch

from lkf_plugin.errors import UserError
from lkf_plugin.latents.sequence import Sequence
from lkf_plugin.likelihood.few_step import nats_of_pattern
from lkf_plugin.likelihood.replay import RULES, committed_replay, find_rule, next_positions, replay
from tests.latents.enumeration import CASES, STRINGS
from tests.likelihood.tables import TableModel

every_structure = pytest.mark.parametrize("structure", CASES.values(), ids=CASES.keys())
every_rule = pytest.mark.parametrize("rule", RULES)


@every_structure
@every_rule
@pytest.mark.parametrize("num_steps", [1, 2, 3, 4, 6])
def test_likelihoods_add_up_to_one(structure, rule, num_steps):
    found = replay(TableModel(structure), STRINGS, num_steps, find_rule(rule))
    for nats_X in found:
        assert nats_X.neg().exp().sum().item() == pytest.approx(1, abs=1e-12)


@every_rule
@pytest.mark.parametrize("num_steps", [1, 2, 3, 4])
def test_committed_likelihoods_add_up_to_one(rule, num_steps):
    nats_X = committed_replay(TableModel(Sequence(3)), STRINGS, num_steps, find_rule(rule))
    assert nats_X.neg().exp().sum().item() == pytest.approx(1, abs=1e-12)


@every_structure
def test_left_to_right_is_the_pattern_of_that_name(structure):
    model = TableModel(structure)
    found = replay(model, STRINGS, 2, find_rule("left_to_right"))
    step_XL = torch.tensor([0, 0, 1, 1]).expand_as(STRINGS)
    free_XL = torch.ones_like(STRINGS, dtype=torch.bool)
    for ours, theirs in zip(
        found, nats_of_pattern(model, STRINGS, step_XL, [1.0, 0.5], free_XL), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


def test_order_shared_by_all_components_makes_committed_and_frozen_equal():
    model, rule = TableModel(Sequence(3)), find_rule("left_to_right")
    committed_X = committed_replay(model, STRINGS, 3, rule)
    torch.testing.assert_close(committed_X, replay(model, STRINGS, 3, rule).frozen_B)


def test_one_component_commits_to_what_it_is():
    model = TableModel(Sequence(1))
    for rule in RULES.values():
        found = replay(model, STRINGS, 2, rule)
        torch.testing.assert_close(found.redrawn_B, found.frozen_B)
        torch.testing.assert_close(committed_replay(model, STRINGS, 2, rule), found.frozen_B)


def test_rules_choose_what_they_say():
    p_1LV = torch.tensor([[[0.6, 0.4, 0.0], [0.5, 0.25, 0.25], [0.55, 0.23, 0.22]]])
    first = {name: rule(p_1LV.log())[0].argmax().item() for name, rule in RULES.items()}
    assert first == {"left_to_right": 0, "confidence": 0, "margin": 2, "certainty": 0}
    masked_1L = torch.tensor([[True, False, True, True, True]])
    priority_1L = torch.tensor([[1.0, 9.0, 2.0, 2.0, 3.0]])
    assert next_positions(priority_1L, masked_1L, 2).tolist() == [[False, False, True, False, True]]
    assert next_positions(priority_1L, masked_1L, 4).sum() == 1
    assert not next_positions(priority_1L, torch.zeros_like(masked_1L), 3).any()


def test_unknown_rules_and_latents_per_block_are_refused():
    with pytest.raises(UserError, match="take one of left_to_right, confidence, margin"):
        find_rule("best")
    with pytest.raises(UserError, match="latent=sequence"):
        committed_replay(TableModel(CASES["chain, positions"]), STRINGS, 2, RULES["margin"])

"""The likelihoods of a tiny network: its own objective at one step, exact replays."""

from __future__ import annotations

import pytest
import torch

from lkf_plugin.corruption import LogLinearNoise, nelbo_weight
from lkf_plugin.decode.network import DecodeNetwork
from lkf_plugin.decode.noise import mix
from lkf_plugin.information.product_mixture import all_strings
from lkf_plugin.kernel import log_mixture
from lkf_plugin.likelihood.few_step import few_step_nelbo
from lkf_plugin.likelihood.network_steps import NetworkSteps
from lkf_plugin.likelihood.replay import RULES, committed_replay, replay
from lkf_plugin.objective.components import HeadSettings, component_scores
from lkf_plugin.objective.mixture import marginal_nll
from tests.tiny import tiny_backbone

MASK = 3
STRINGS = all_strings(4, 3)


def steps(components: int) -> NetworkSteps:
    backbone = tiny_backbone(4, MASK, num_components=components, length=4)
    return NetworkSteps(DecodeNetwork(backbone, LogLinearNoise(), lambda s: s.double()))


@pytest.mark.parametrize("components", [1, 3])
def test_one_step_is_the_mixture_at_the_all_mask_state(components):
    model = steps(components)
    found = few_step_nelbo(model, STRINGS, 1, mix(1, torch.arange(len(STRINGS))), batch_rows=32)
    every_XL = torch.ones_like(STRINGS, dtype=torch.bool)
    sigma_X = model.network.sigma_at(1.0, len(STRINGS), STRINGS.device)
    (logw_XM,), logp_XML = component_scores(
        model.network.backbone,
        torch.full_like(STRINGS, MASK),
        STRINGS,
        every_XL,
        sigma_X,
        HeadSettings("full"),
    )
    expected_X = -log_mixture(logw_XM, logp_XML.sum(-1))
    torch.testing.assert_close(found.redrawn_B, expected_X)
    torch.testing.assert_close(found.frozen_B, expected_X)
    assert found.redrawn_B.neg().exp().sum().item() == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("components", [1, 3])
def test_many_steps_come_near_the_marginal_nelbo(components):
    """Another estimator of the same bound: one time, all masks, weight 1 / tau."""
    model = steps(components)
    rows = 1500
    x_BL = STRINGS[[50]].expand(rows, -1)
    many_B = few_step_nelbo(model, x_BL, 64, mix(1, torch.arange(rows)), batch_rows=rows).redrawn_B
    torch.manual_seed(0)
    tau_B = (torch.rand(rows) + torch.arange(rows)) / rows
    sigma_B, dsigma_B = model.network.noise(tau_B)
    counted_BL = torch.rand(rows, 4) < (1 - torch.exp(-sigma_B))[:, None]
    scores = component_scores(
        model.network.backbone,
        torch.where(counted_BL, MASK, x_BL),
        x_BL,
        counted_BL,
        sigma_B.double(),
        HeadSettings("full"),
    )
    weight_B = nelbo_weight(sigma_B, dsigma_B)
    nelbo_B = marginal_nll(model.structure, scores, weight_B, counted_BL).sum(-1)
    error = (many_B.var() / rows + nelbo_B.var() / rows).sqrt()
    assert (many_B.mean() - nelbo_B.mean()).abs() < 4 * error + 0.02


@pytest.mark.parametrize("rule", RULES)
def test_replays_of_a_network_add_up_to_one(rule):
    model = steps(3)
    for nats_X in replay(model, STRINGS, 2, RULES[rule]):
        assert nats_X.neg().exp().sum().item() == pytest.approx(1, abs=1e-9)
    committed_X = committed_replay(model, STRINGS, 2, RULES[rule])
    assert committed_X.neg().exp().sum().item() == pytest.approx(1, abs=1e-9)

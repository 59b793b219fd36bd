"""The warm-up's loss and gradient, against the same sum written out."""

from __future__ import annotations

import pytest
import torch

from lkf_plugin.latents.em import fit, warm_up_nll
from lkf_plugin.objective import warm_up
from lkf_plugin.objective.components import component_scores
from lkf_plugin.objective.mixture import Mixture
from lkf_plugin.objective.warm_up import WarmUp
from tests.objective.test_block_latents import LOSS, STRUCTURES, corruption, network


@pytest.mark.parametrize("name", ["sequence", *STRUCTURES])
def test_loss_and_gradient(name, monkeypatch):
    monkeypatch.setattr(warm_up, "NEGLIGIBLE", 0.0)
    model = network(name)
    objective = Mixture({**LOSS, "backward": "dense"}, model.structure)
    c = corruption(objective)
    torch.manual_seed(2)
    law = fit(model.structure, torch.randint(0, 3, (40, 8)), 4, rounds=3)
    value = WarmUp(law, 5, objective).train(model, c)

    scores = component_scores(model, c.xt_BL, c.target_BL, c.counted_BL, c.sigma_B, objective.head)
    clean = law.posterior(c.target_BL)
    ell_BGM = c.weight_B[:, None, None] * model.structure.blocks.sums(scores.logp_BML)
    expected_B = warm_up_nll(scores.potentials, ell_BGM, clean)
    torch.testing.assert_close(value.nll_B, expected_B, rtol=1e-5, atol=1e-5)
    expected = expected_B.sum() / c.attention_BL.sum()
    torch.testing.assert_close(value.loss, expected, rtol=1e-5, atol=1e-6)
    assert (value.nlls_BL[~c.counted_BL] == 0).all()
    parameters = [p for p in model.parameters() if p.requires_grad]
    for a, b in zip(
        torch.autograd.grad(value.loss, parameters),
        torch.autograd.grad(expected, parameters),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_what_has_no_weight_has_no_branch_pass():
    model = network("chain")
    objective = Mixture({**LOSS, "backward": "drawn"}, model.structure)
    c = corruption(objective)
    law = fit(model.structure, torch.randint(0, 3, (40, 8)), 4, rounds=3)
    passes = []
    plain = model.branch_hidden
    model.branch_hidden = lambda state, at, row, component: (
        passes.append(len(row)) or plain(state, at, row, component)
    )
    WarmUp(law, 5, objective).train(model, c)
    assert len(passes) == 1 and passes[0] < 3 * 5  # one call, and not for every component

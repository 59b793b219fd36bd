"""The weight average against MDLM's own, and its handling of an evaluation."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from lkf_plugin.errors import UserError
from lkf_plugin.train import ema
from lkf_plugin.train.ema import ExponentialMovingAverage
from tests.golden_arrays import assert_matches, load


@pytest.mark.parametrize("chunk", [1, 1 << 25])
def test_thirty_updates_as_mdlm(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ema, "_CHUNK", chunk)
    golden = load("mdlm/ema.npz")
    weights = [nn.Parameter(torch.arange(3.0)), nn.Parameter(torch.ones(2, 2))]
    average = ExponentialMovingAverage(weights, decay=float(golden["decay"]))
    for k in range(30):
        with torch.no_grad():
            weights[0] += 0.1 * k
            weights[1] *= 0.9
        average.update(weights)
        for i in range(2):
            stored = golden[f"shadow{i}"][k]
            assert_matches(average.shadow_params[i], stored, f"shadow{i} after update {k}")


def test_evaluation_leaves_the_weights_as_they_were() -> None:
    frozen = nn.Parameter(torch.ones(2), requires_grad=False)
    weights = [nn.Parameter(torch.zeros(3)), frozen]
    average = ExponentialMovingAverage(weights, decay=0.5)
    assert len(average.shadow_params) == 1
    with torch.no_grad():
        weights[0].fill_(1.0)
    average.update(weights)
    average.store(weights)
    average.copy_to(weights)
    assert torch.equal(weights[0], average.shadow_params[0])
    assert not torch.equal(weights[0], torch.ones(3))
    average.restore(weights)
    assert torch.equal(weights[0], torch.ones(3))


def test_state_has_mdlm_layout_and_is_copied_on_load() -> None:
    weights = [nn.Parameter(torch.zeros(3))]
    average = ExponentialMovingAverage(weights, decay=0.9)
    state = {"decay": 0.8, "num_updates": 7, "shadow_params": [torch.ones(3)]}
    assert average.state_dict().keys() == state.keys()
    average.load_state_dict(state)
    average.update(weights)
    assert average.num_updates == 8
    assert torch.equal(state["shadow_params"][0], torch.ones(3))


def test_another_network_is_refused() -> None:
    average = ExponentialMovingAverage([nn.Parameter(torch.zeros(3))], decay=0.9)
    with pytest.raises(UserError, match="another network"):
        average.load_state_dict({"decay": 0.9, "num_updates": 0, "shadow_params": [torch.ones(4)]})


def test_decay_outside_its_range_is_refused() -> None:
    with pytest.raises(UserError, match="training.ema"):
        ExponentialMovingAverage([], decay=1.5)

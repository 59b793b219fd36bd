"""The frontier that the calibration's temperature walks."""

from __future__ import annotations

import torch

from lkf_plugin.decode.calibration import component_means
from lkf_plugin.decode.options import DecodeOptions
from lkf_plugin.decode.policies.calibrated import calibrated, calibrated_weights
from lkf_plugin.decode.policies.commit import commit
from tests.decode.tiny_request import tiny_request


def test_endless_temperature_is_commit() -> None:
    hot = {"select_temperature": 1e12, "calibration_samples": 4}
    assert torch.equal(calibrated(tiny_request(50), hot).x_GL, commit(tiny_request(50), {}).x_GL)


def test_near_zero_only_the_best_component_speaks() -> None:
    request = tiny_request(50)
    cold = {"select_temperature": 1e-6, "score": "evidence", "calibration_samples": 4}
    best = component_means(request, DecodeOptions.read(cold))[0].argmin()
    assert (calibrated(request, cold).component_G == best).all()


def test_weights_are_prior_times_tempered_cost_a_token() -> None:
    request = tiny_request(2)
    request.x_GL[1, :4] = 1  # four tokens to generate instead of eight
    options = DecodeOptions(score="evidence", select_temperature=0.3, calibration_samples=6)
    weight_GM = calibrated_weights(request, options)
    cost_GM = component_means(request, options) / torch.tensor([[8.0], [4.0]])
    expected_GM = request.prior().exp() * torch.exp(-cost_GM / 0.3)
    torch.testing.assert_close(weight_GM, expected_GM / expected_GM.sum(-1, keepdim=True))


def test_the_weights_are_learned_on_other_samples() -> None:
    """Other delivered samples, the same calibration."""
    options = DecodeOptions(calibration_samples=4)
    first = component_means(tiny_request(3, seed=1), options)
    second = component_means(tiny_request(3, seed=2), options)
    assert torch.equal(first, second)

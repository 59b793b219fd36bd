"""softmax, centred and random picks: their laws and what they must not depend on."""

from __future__ import annotations

import pytest
import torch

from lkf_plugin.decode.calibration import component_means
from lkf_plugin.decode.options import DecodeOptions
from lkf_plugin.decode.policies.best_of_m import best_of_m
from lkf_plugin.decode.selectors import pick, run_and_select
from tests.decode.tiny_request import tiny_request


def test_softmax_picks_by_its_law() -> None:
    request = tiny_request(samples=20_000)
    score = torch.tensor([3.0, 1.0, torch.inf, 2.5], dtype=torch.float64)
    options = DecodeOptions(selector="softmax", select_temperature=0.7)
    picked_G = pick(request, score.expand(20_000, -1), options)
    law = torch.softmax(-score / 0.7, dim=-1)
    share = torch.bincount(picked_G, minlength=4) / 20_000
    assert share[2] == 0
    error = (law * (1 - law) / 20_000).sqrt()
    assert ((share - law).abs() < 4.5 * error + 1e-12).all()


def test_softmax_near_zero_is_argmin() -> None:
    request = tiny_request()
    cold = {"selector": "softmax", "score": "evidence", "select_temperature": 1e-9}
    assert torch.equal(
        best_of_m(request, cold).x_GL, best_of_m(request, {"selector": "evidence"}).x_GL
    )


def test_centring_takes_each_component_s_mean_away() -> None:
    request = tiny_request()
    plain = best_of_m(request, {"selector": "evidence"})
    settings = {"selector": "centred", "score": "evidence", "calibration_samples": 5}
    centred = best_of_m(request, settings)
    means_GM = component_means(request, DecodeOptions.read(settings))
    assert plain.score_GC is not None and centred.score_GC is not None
    torch.testing.assert_close(centred.score_GC, plain.score_GC - means_GM)
    assert torch.equal(centred.component_G, centred.score_GC.argmin(-1))
    assert len(request.memory) == 1  # made once


def test_centring_undoes_what_is_constant_for_a_component() -> None:
    """A component that is easier than the others by a constant wins everything, but centred."""
    request = tiny_request(samples=60)
    easy = torch.tensor([0.0, 500.0, 0.0], dtype=torch.float64)
    plain = best_of_m(request, {"selector": "evidence"}).score_GC
    assert plain is not None
    mean = component_means(request, DecodeOptions(score="evidence"))
    options = DecodeOptions(selector="nelbo")
    assert (pick(request, plain - easy, options) == 1).all()
    before, after = plain - mean, (plain - easy) - (mean - easy)
    assert torch.equal(pick(request, before, options), pick(request, after, options))
    assert len(set(pick(request, before, options).tolist())) == 3


def test_calibration_is_made_at_each_start() -> None:
    request = tiny_request(samples=2)
    request.x_GL[1, :4] = 1
    means_GM = component_means(request, DecodeOptions(score="evidence", calibration_samples=3))
    assert len(request.memory) == 2 and (means_GM[0] != means_GM[1]).all()


def test_random_pick_is_uniform_over_the_living_and_is_that_component_s_chain() -> None:
    request = tiny_request(samples=3000, steps=1)
    decoded = best_of_m(request, {"selector": "random"})
    share = torch.bincount(decoded.component_G, minlength=3) / 3000
    assert (share - 1 / 3).abs().max() < 4.5 * (2 / 9 / 3000) ** 0.5
    few = tiny_request(samples=5)
    whole, one = best_of_m(few, {"selector": "evidence"}), best_of_m(few, {"selector": "random"})
    assert whole.candidates_GCL is not None
    rows = torch.arange(5)
    assert torch.equal(one.x_GL, whole.candidates_GCL[rows, one.component_G])


@pytest.mark.parametrize("selector", ["nelbo", "evidence"])
def test_the_order_of_candidates_changes_nothing(selector: str) -> None:
    """With one noise stream a candidate is its component: shuffled, the same one is delivered."""
    request = tiny_request(samples=8)
    components = torch.arange(3).expand(8, -1)
    every = torch.ones(8, 3, dtype=torch.bool)
    options = DecodeOptions(selector=selector, shared_noise=True)
    order = torch.tensor([2, 0, 1])
    straight = run_and_select(request, components, every, options)
    shuffled = run_and_select(request, components[:, order], every, options)
    assert torch.equal(straight.x_GL, shuffled.x_GL)
    assert straight.score_GC is not None and shuffled.score_GC is not None
    torch.testing.assert_close(straight.score_GC[:, order], shuffled.score_GC)


def test_candidates_are_what_was_scored() -> None:
    decoded = best_of_m(tiny_request(), {"selector": "evidence"})
    assert decoded.candidates_GCL is not None and decoded.score_GC is not None
    rows = torch.arange(6)
    winner = decoded.candidates_GCL[rows, decoded.score_GC.argmin(-1)]
    assert torch.equal(decoded.x_GL, winner)

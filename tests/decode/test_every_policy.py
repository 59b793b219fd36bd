"""What must hold for every policy, whatever it picks."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lkf_plugin.decode.options import DecodeOptions
from lkf_plugin.decode.policies.commit import commit
from lkf_plugin.decode.registry import POLICIES
from lkf_plugin.errors import UserError
from tests.decode.tiny_request import tiny_request

T = 2
CASES: dict[str, dict[str, Any]] = {
    "commit": {"policy": "commit"},
    "commit random": {"policy": "commit", "component": "random"},
    "nelbo": {"policy": "best_of_m", "score_draws": T},
    "evidence": {"policy": "best_of_m", "selector": "evidence"},
    "softmax": {"policy": "best_of_m", "selector": "softmax", "score": "evidence"},
    "centred": {"policy": "best_of_m", "selector": "centred", "calibration_samples": 4},
    "shared centred": {
        "policy": "best_of_m",
        "selector": "centred",
        "score": "evidence",
        "shared_noise": True,
        "calibration_samples": 4,
    },
    "random": {"policy": "best_of_m", "selector": "random"},
    "best_of_n": {"policy": "best_of_n", "num_candidates": 3, "score_draws": T},
    "halving": {"policy": "halving", "shared_noise": True},
    "redraw": {"policy": "redraw"},
    "deferred": {"policy": "deferred", "switch_step": 2},
    "probe": {"policy": "probe", "probe_step": 2, "probe_report": False, "shared_noise": True},
    "probe report": {"policy": "probe", "probe_step": 2, "score_draws": T},
    "solo": {"policy": "solo", "component": 0, "num_candidates": 1},
    "solo reranked": {"policy": "solo", "component": 0, "num_candidates": 3, "score_draws": T},
    "calibrated": {"policy": "calibrated", "calibration_samples": 4, "select_temperature": 0.1},
}
PROMPT = torch.tensor([2, 1, 2, 4, 2, 2, 0, 2])


def run(case: str, *args: Any, **changes: Any) -> Any:
    settings = CASES[case]
    return POLICIES[settings["policy"]](tiny_request(*args, **changes), settings)


def test_every_policy_is_a_case() -> None:
    assert {one["policy"] for one in CASES.values()} == set(POLICIES)


@pytest.mark.parametrize("case", CASES)
def test_prompts_with_gaps_are_kept_and_filled(case: str) -> None:
    x_GL = run(case, prompt=PROMPT).x_GL
    shown = PROMPT != 2
    assert (x_GL[:, shown] == PROMPT[shown]).all() and (x_GL != 2).all()


@pytest.mark.parametrize("case", CASES)
def test_a_sample_does_not_depend_on_its_batch(case: str) -> None:
    many, few = run(case, 6), run(case, 2)
    assert torch.equal(many.x_GL[:2], few.x_GL)
    assert torch.equal(many.component_G[:2], few.component_G)


@pytest.mark.parametrize("case", CASES)
def test_same_seed_same_samples(case: str) -> None:
    assert torch.equal(run(case).x_GL, run(case).x_GL)
    assert not torch.equal(run(case).x_GL, run(case, seed=2).x_GL)


@pytest.mark.parametrize("case", [case for case in CASES if "candidates" not in str(CASES[case])])
def test_one_component_is_the_plain_chain_bit_for_bit(case: str) -> None:
    plain = commit(tiny_request(num_components=1), {"component": "router"})
    assert torch.equal(run(case, num_components=1).x_GL, plain.x_GL)


@pytest.mark.parametrize("case", CASES)
def test_one_component_is_legal(case: str) -> None:
    decoded = run(case, num_components=1)
    assert (decoded.x_GL != 2).all() and (decoded.component_G == 0).all()


@pytest.mark.parametrize("J", [1, 3, 4, 8])
@pytest.mark.parametrize("case", CASES)
def test_calls_as_stated(case: str, J: int) -> None:
    """The engine's own count is at most the stated one, which is the method's formula."""
    M, j = 3, min(2, J)
    stated = {
        "nelbo": M * (J + T),
        "evidence": M * J,
        "softmax": M * J,
        "centred": M * (J + 4),
        "shared centred": M * J,
        "best_of_n": 3 * (J + T),
        "probe": M * j + J - j,
        "probe report": M * j + J - j,
        "solo reranked": 3 * (J + T),
        "halving": {1: 3, 3: 3 + 2 + 1, 4: 3 + 2 + 2, 8: 6 + 4 + 4}[J],
    }
    decoded = run(case, steps=J)
    assert decoded.steps_calls == stated.get(case, J)
    if case == "deferred":  # the router's passes are evaluations of their own here
        assert decoded.network_calls <= J + j + 1
    elif case == "probe report":
        assert decoded.network_calls <= M * (J + T)
    else:
        assert 0 < decoded.network_calls <= decoded.steps_calls


def test_on_the_paper_s_grid_the_counts_meet_where_every_step_reveals() -> None:
    """J = 1 with eps = 0: every row reveals everything in its one step."""
    for case in ("commit", "evidence", "best_of_n"):
        decoded = run(case, steps=1, eps=0.0)
        assert decoded.network_calls == decoded.steps_calls


@pytest.mark.parametrize(
    "case", ["nelbo", "softmax", "halving", "probe", "commit random", "random"]
)
def test_the_dead_give_no_candidates(case: str) -> None:
    request = tiny_request(samples=40)
    with torch.no_grad():
        request.engine.network.backbone.router.out.bias[1] -= 50.0
    settings = CASES[case]
    decoded = POLICIES[settings["policy"]](request, settings)
    assert (decoded.component_G != 1).all()


def test_the_calibrated_dead_are_silent_even_if_they_score_best() -> None:
    request = tiny_request(samples=40)
    net = request.engine.network
    with torch.no_grad():
        net.backbone.router.out.bias[1] -= 5.0  # weight .003, below 1 / 30
    settings = {**CASES["calibrated"], "select_temperature": 100.0}
    assert (POLICIES["calibrated"](request, settings).component_G != 1).all()
    loud = {**settings, "min_prior": 0.0, "select_temperature": 1e6}
    assert request.prior()[0, 1].exp() < 1 / 30
    assert (POLICIES["calibrated"](tiny_request(400), loud).component_G == 1).any()


def test_unknown_options_are_named() -> None:
    with pytest.raises(UserError, match="decode.luck is no setting"):
        DecodeOptions.read({"luck": 1})
    with pytest.raises(UserError, match="decode.score=x is unknown"):
        DecodeOptions.read({"score": "x"})
    with pytest.raises(UserError, match="select_temperature=0 must be above 0"):
        DecodeOptions.read({"select_temperature": 0})
    with pytest.raises(UserError, match="switch_step=-1"):
        DecodeOptions.read({"switch_step": -1})
    with pytest.raises(UserError, match="needs a number"):
        POLICIES["solo"](tiny_request(), {"component": "router"})

"""halving and probe: whom they keep, what it costs, and that survivors do not notice."""

from __future__ import annotations

import pytest
import torch

from lkf_plugin.decode.candidates import Pool
from lkf_plugin.decode.policies.best_of_m import best_of_m
from lkf_plugin.decode.policies.halving import halving, keep_best, schedule
from lkf_plugin.decode.policies.probe import probe, rank_correlation
from tests.decode.tiny_request import tiny_request


@pytest.mark.parametrize(
    ("M", "calls"), [(8, {4: 12, 8: 24, 16: 48, 32: 96}), (4, {4: 8, 8: 16, 16: 32, 32: 64})]
)
def test_calls_of_the_paper(M: int, calls: dict[int, int]) -> None:
    for J, expected in calls.items():
        request = tiny_request(samples=2, steps=J, num_components=M)
        decoded = halving(request, {"min_prior": 0.0, "shared_noise": True})
        assert decoded.steps_calls == expected
        assert decoded.network_calls <= expected


def test_schedule() -> None:
    assert schedule(32, 8) == [(8, 2), (16, 1)]
    assert schedule(32, 32) == [(8, 8), (16, 1)]
    assert schedule(1, 8) == [(1, 2), (1, 1)]
    assert schedule(2, 8) == [(1, 2), (1, 1)]


def test_keep_best_takes_the_first_of_equals_and_no_ghosts() -> None:
    inf = torch.inf
    cost = torch.tensor([[2.0, 1.0, 1.0, 5.0], [inf, 3.0, inf, inf]])
    assert keep_best(cost, 2).tolist() == [[False, True, True, False], [False, True, False, False]]
    assert keep_best(cost, 1)[0].tolist() == [False, True, False, False]


@pytest.mark.parametrize("shared", [True, False])
def test_halving_keeps_what_evidence_says(shared: bool) -> None:
    """Against one complete run, read off at J / 4 and J / 2."""
    request = tiny_request(samples=12, steps=8, num_components=8)
    pruned = halving(request, {"min_prior": 0.0, "shared_noise": shared})
    components = torch.arange(8).expand(12, -1)
    whole = Pool.start(request, components, torch.ones(12, 8, dtype=torch.bool), shared)
    whole.run_to(2)
    first = whole.cost().argsort(-1)[:, :2]
    whole.run_to(4)
    second = whole.cost().gather(-1, first)
    survivor = first.gather(-1, second.argmin(-1, keepdim=True)).squeeze(-1)
    whole.finish()
    rows = torch.arange(12)
    assert torch.equal(pruned.component_G, survivor)
    assert torch.equal(pruned.x_GL, whole.tokens()[rows, survivor])


def test_a_probe_to_the_end_is_best_of_m_by_evidence() -> None:
    settings = {"shared_noise": True, "probe_step": 4, "selector": "evidence"}
    decoded = probe(tiny_request(samples=20), settings)
    whole = best_of_m(tiny_request(samples=20), {"shared_noise": True, "selector": "evidence"})
    assert torch.equal(decoded.x_GL, whole.x_GL)
    assert decoded.facts == {"probe_agreement": 1.0, "probe_rank_correlation": pytest.approx(1.0)}
    assert decoded.steps_calls == whole.steps_calls


def test_a_probe_of_no_step_knows_nothing() -> None:
    decoded = probe(tiny_request(samples=20), {"probe_step": 0, "selector": "evidence"})
    assert (decoded.component_G == 0).all() and decoded.steps_calls == 4
    assert decoded.facts["probe_rank_correlation"] == 0.0


def test_the_report_changes_no_sample() -> None:
    quiet = {"probe_step": 1, "probe_report": False, "shared_noise": True}
    first = probe(tiny_request(samples=20), quiet)
    second = probe(tiny_request(samples=20), {**quiet, "probe_report": True, "score_draws": 2})
    assert torch.equal(first.x_GL, second.x_GL)
    assert first.network_calls < second.network_calls
    assert first.steps_calls == second.steps_calls
    assert 0 <= second.facts["probe_agreement"] < 1


def test_rank_correlation() -> None:
    inf = torch.inf
    a = torch.tensor([[1.0, 2.0, 3.0, inf], [1.0, 2.0, 3.0, 4.0], [1.0, 1.0, 2.0, 3.0]])
    b = torch.tensor([[30.0, 20.0, 10.0, inf], [1.0, 3.0, 2.0, 4.0], [5.0, 6.0, 7.0, 8.0]])
    expected = [-1.0, 0.8, 0.9486832980505138]  # the last as scipy.stats.spearmanr gives it
    assert rank_correlation(a.double(), b.double()).tolist() == pytest.approx(expected)

"""Attribution finds the component that makes the gain, on a pool whose answer is known."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from lkf_plugin.errors import UserError
from lkf_plugin.evaluate.attribution import (
    advantage,
    attribution,
    changes_sign,
    match_temperature,
    one_fewer,
    share_entropy,
)
from lkf_plugin.evaluate.cells import Samples
from lkf_plugin.records.estimate import Estimate, mean_and_error


class TokenQuality:
    """A judge to whom a text's perplexity is its first token; lower is better."""

    metric = "gen_ppl[first]"
    higher_is_better = False
    judge = None

    def figure(self, ids_SL: torch.Tensor) -> Estimate:
        return mean_and_error(ids_SL[:, 0].double().numpy())

    def measure(self, ids_SL: torch.Tensor) -> dict[str, Estimate]:
        return {self.metric: self.figure(ids_SL)}


def pool(quality: list[int], score: list[list[float]]) -> Samples:
    """Component k always says ``quality[k]`` first."""
    score_SC = torch.tensor(score, dtype=torch.float64)
    S, C = score_SC.shape
    first_SC = torch.tensor(quality).expand(S, C)
    candidates = torch.stack([first_SC, first_SC + 1], dim=-1)
    winner_S = score_SC.argmin(-1)
    return Samples(
        candidates[torch.arange(S), winner_S], winner_S, candidates, score_SC, 1.0, 1.0, {}
    )


def test_the_easy_component_is_found() -> None:
    """Component 0 is ten times easier and wins three of four; without it the pick is poor."""
    samples = pool(
        [10, 100, 120],
        [[1.0, 2.0, 3.0], [1.0, 3.0, 2.0], [1.0, 2.0, 3.0], [3.0, 2.0, 1.0]],
    )
    quality: Any = TokenQuality()
    found = attribution(samples, quality)
    assert [found[f"share[{k}]"].value for k in range(3)] == [0.75, 0.0, 0.25]
    assert found["favourite"].value == 0
    solo = [found[f"gen_ppl[first].solo[{k}]"].value for k in range(3)]
    assert solo == [10.0, 100.0, 120.0]
    assert found["gen_ppl[first].without_favourite"].value == (100 + 120 + 100 + 120) / 4
    expected = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert found["share_entropy"].value == pytest.approx(expected)
    # a control of 90: the whole is ahead, the rest is behind
    whole = advantage(37.5, 90.0, higher_is_better=False)
    dropped = advantage(found["gen_ppl[first].without_favourite"].value, 90.0, False)
    assert changes_sign(whole, dropped)


def test_dead_components_have_no_solo_figure() -> None:
    inf = math.inf
    samples = pool([10, 100, 5], [[1.0, 2.0, inf], [2.0, 1.0, inf]])
    quality: Any = TokenQuality()
    found = attribution(samples, quality)
    assert "gen_ppl[first].solo[2]" not in found and found["share[2]"].value == 0
    alone = pool([10, 100], [[1.0, inf], [1.0, inf]])
    assert "gen_ppl[first].without_favourite" not in attribution(alone, quality)


def test_one_fewer_drops_the_last_stream() -> None:
    quality: Any = TokenQuality()
    found = one_fewer(pool([10, 20, 30], [[2.0, 3.0, 1.0], [3.0, 2.0, 1.0]]), quality)
    assert found["gen_ppl[first].one_fewer"].value == 15.0
    assert one_fewer(pool([10], [[1.0]]), quality) == {}


def test_advantage_and_its_sign() -> None:
    assert advantage(106, 183, higher_is_better=False) == pytest.approx(0.42, abs=0.002)
    assert advantage(0.9, 0.2, higher_is_better=True) == pytest.approx(0.7)
    assert changes_sign(0.4, -0.1) and changes_sign(0.4, 0.0)
    assert not changes_sign(0.4, 0.1) and not changes_sign(-0.1, -0.2)


def test_share_entropy_of_even_picks() -> None:
    assert share_entropy(torch.arange(8), 8).value == pytest.approx(math.log(8))
    assert share_entropy(torch.zeros(5, dtype=torch.int64), 8).value == 0.0


def test_match_temperature_finds_the_crossing_and_keeps_to_its_ends() -> None:
    asked = []

    def entropy_at(temperature: float) -> float:
        asked.append(temperature)
        return 4 + temperature + 0.1 * temperature**2

    found = match_temperature(entropy_at, 4.8, at_one=5.1, rounds=3)
    assert entropy_at(found) == pytest.approx(4.8, abs=1e-4)
    assert 1.0 not in asked  # it was told
    assert match_temperature(entropy_at, 9.0) == 1.0
    assert match_temperature(entropy_at, 1.0) == 0.5
    assert match_temperature(lambda temperature: 5.0, 4.0) == 0.9  # no slope to follow


def test_a_chain_without_candidates_has_none_to_attribute() -> None:
    ids = torch.zeros(2, 3, dtype=torch.int64)
    quality: Any = TokenQuality()
    with pytest.raises(UserError, match="needs the candidates"):
        attribution(Samples(ids, ids[:, 0], None, None, 1.0, 1.0, {}), quality)

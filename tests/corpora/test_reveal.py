from __future__ import annotations

import itertools
import math

import pytest
import torch

from lkf_plugin.corpora.reveal import binary_entropy, reveal, reveal_probability
from lkf_plugin.errors import UserError

MASK = 5


def test_patterns_sum_to_one_and_are_counted() -> None:
    xt = torch.tensor([[MASK, 3, MASK, MASK]])
    states = torch.tensor(
        [
            [v if keep else MASK for v, keep in zip((1, 3, 2, 4), bits, strict=True)]
            for bits in itertools.product((0, 1), repeat=4)
            if bits[1]
        ]
    )
    seen = reveal(states, xt.expand_as(states), 0.2, 0.6, MASK)
    assert seen.log_prob_B.exp().sum().item() == pytest.approx(1.0, abs=1e-12)
    assert seen.masked_B.tolist() == [3] * 8
    assert seen.revealed_B.tolist() == [0, 1, 1, 2, 1, 2, 2, 3]
    # Half of what is masked at 0.2 shows at 0.6, so that every pattern is equally likely.
    torch.testing.assert_close(seen.log_prob_B, torch.full((8,), -3 * math.log(2)).double())


def test_visible_words_may_not_change() -> None:
    xt = torch.tensor([[1, MASK], [1, MASK], [1, MASK]])
    xs = torch.tensor([[1, 2], [2, 2], [MASK, 2]])
    assert reveal(xs, xt, 0.0, 1.0, MASK).log_prob_B.tolist() == [0.0, -math.inf, -math.inf]


def test_ends_of_the_clock_are_finite() -> None:
    xt, xs = torch.full((1, 3), MASK), torch.tensor([[0, 1, 2]])
    assert reveal(xs, xt, 0.3, 1.0, MASK).log_prob_B.item() == 0.0
    assert reveal(xt, xt, 0.3, 1.0, MASK).log_prob_B.item() == -math.inf
    assert reveal(xt, xt, 0.3, 0.3, MASK).log_prob_B.item() == 0.0


def test_times_per_row() -> None:
    p = reveal_probability(torch.tensor([0.0, 0.5]), torch.tensor([0.25, 0.75]))
    assert p.tolist() == [0.25, 0.5]
    assert binary_entropy(torch.tensor([0.0, 0.5, 1.0])).tolist() == pytest.approx(
        [0.0, math.log(2), 0.0]
    )


@pytest.mark.parametrize(("t", "s"), [(0.5, 0.4), (-0.1, 0.5), (1.0, 1.0), (0.0, 1.1)])
def test_bad_times_are_refused(t: float, s: float) -> None:
    with pytest.raises(UserError):
        reveal_probability(t, s)


def test_bad_shapes_are_refused() -> None:
    with pytest.raises(UserError):
        reveal(torch.zeros(1, 2).long(), torch.zeros(1, 3).long(), 0.0, 1.0, MASK)

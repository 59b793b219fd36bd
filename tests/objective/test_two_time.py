"""The two-time objective sums to one over next states, in both forms."""

from __future__ import annotations

import itertools

import pytest
import torch

from lkf_plugin.errors import UserError
from lkf_plugin.kernel import log_mixture
from lkf_plugin.objective.components import HeadSettings
from lkf_plugin.objective.two_time import two_time_scores
from tests.tiny import tiny_backbone

MASK = 2


def all_next_states(xt):
    """Every x_s that carries the revealed tokens over."""
    choices = [range(3) if token == MASK else [token] for token in xt]
    return torch.tensor(list(itertools.product(*choices)))


@pytest.mark.parametrize("form", ["learned", "analytic"])
@pytest.mark.parametrize("xt", [[MASK, MASK, MASK], [0, MASK, MASK], [1, 0, MASK]])
def test_probabilities_of_all_next_states_sum_to_one(form, xt):
    model = tiny_backbone(vocab_size=3, mask_index=MASK, trunk="native", num_components=2)
    xs = all_next_states(xt)
    n = len(xs)
    x = torch.tensor(xt).expand(n, -1)
    t = torch.full((n,), 0.2, dtype=torch.float64)
    s = torch.full((n,), 0.7, dtype=torch.float64)
    scores = two_time_scores(model, x, xs, x == MASK, t, s, form, HeadSettings("chunked"))
    psi = log_mixture(scores.logw_BM, scores.logp_BML.sum(-1)).exp()
    assert psi.sum().item() == pytest.approx(1.0)


def test_analytic_form_keeps_the_reveal_law():
    """P(still masked) = 1 - p_rev exactly, whatever the network says."""
    model = tiny_backbone(vocab_size=3, mask_index=MASK, trunk="native", num_components=2)
    xt = torch.tensor([[MASK, 0]])
    t, s = torch.tensor([0.2], dtype=torch.float64), torch.tensor([0.6], dtype=torch.float64)
    scores = two_time_scores(model, xt, xt, xt == MASK, t, s, "analytic", HeadSettings("full"))
    stays = log_mixture(scores.logw_BM, scores.logp_BML.sum(-1)).exp()
    assert stays.item() == pytest.approx(0.5)


def test_all_masks_at_time_zero_is_finite():
    model = tiny_backbone(vocab_size=3, mask_index=MASK, trunk="native", num_components=2)
    xt = torch.full((1, 3), MASK)
    xs = torch.tensor([[0, MASK, 1]])
    t, s = torch.zeros(1, dtype=torch.float64), torch.full((1,), 0.5, dtype=torch.float64)
    for form in ("learned", "analytic"):
        scores = two_time_scores(model, xt, xs, xt == MASK, t, s, form, HeadSettings("chunked"))
        assert torch.isfinite(scores.logp_BML).all()


def test_unknown_form():
    model = tiny_backbone(vocab_size=3, mask_index=MASK, trunk="native")
    x = torch.full((1, 3), MASK)
    t, s = torch.zeros(1).double(), torch.ones(1).double()
    with pytest.raises(UserError, match="analytic, learned"):
        two_time_scores(model, x, x, x == MASK, t, s, "guessed", HeadSettings("full"))

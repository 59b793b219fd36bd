"""I and TC along (t, s) against the closed form of hidden agreement's exact optimum."""

from __future__ import annotations

import math

import pytest
import torch

from lkf_plugin.corpora.hidden_agreement import HiddenAgreement
from lkf_plugin.information.laws import network_law
from lkf_plugin.information.state_average import information_at, partly_masked
from lkf_plugin.kernel import log_mixture
from lkf_plugin.objective.components import HeadSettings
from lkf_plugin.objective.two_time import two_time_scores
from tests.tiny import tiny_backbone

CORPUS = HiddenAgreement(values=4, length=4)
MASK = CORPUS.mask_id


def perfect_law(xt_BL, t, s):
    """M = V components: k says k where nothing is visible, what is visible else."""
    p = (s - t) / (1 - t)
    rows, M = len(xt_BL), CORPUS.values
    value_BM = torch.arange(M).expand(rows, M).clone()
    seen_BL = xt_BL != MASK
    for b in range(rows):
        if seen_BL[b].any():
            value_BM[b] = xt_BL[b][seen_BL[b]][0]
    prob = p * torch.nn.functional.one_hot(value_BM, MASK + 1).double()
    prob[..., MASK] = 1 - p
    logp = prob.log()[:, :, None].expand(rows, M, CORPUS.length, MASK + 1)
    return torch.full((rows, M), -math.log(M), dtype=torch.float64), logp


@pytest.mark.parametrize(("t", "s"), [(0.0, 0.5), (0.0, 1.0), (0.25, 0.75), (0.5, 1.0)])
def test_exact_optimum(t, s):
    found = information_at(perfect_law, CORPUS.sample, MASK, t, s, states=12)
    assert found.information.value == pytest.approx(float(CORPUS.information(t, s, 4)), abs=1e-9)
    exact = float(CORPUS.captured_correlation(t, s, 4))
    assert found.total_correlation.value == pytest.approx(exact, abs=1e-9)
    assert found.information.value <= found.information_ceiling
    assert found.total_correlation.value <= found.total_correlation_ceiling + 1e-9
    assert found.all_mask_weight == pytest.approx((1 - t) ** 4)


def test_partly_masked_is_binomial_without_zero():
    generator = torch.Generator().manual_seed(0)
    x = torch.ones(20_000, 4, dtype=torch.int64)
    visible = (partly_masked(x, 0.3, MASK, generator) != MASK).sum(-1)
    assert visible.min().item() == 1
    for n in range(1, 5):
        chance = math.comb(4, n) * 0.3**n * 0.7 ** (4 - n) / (1 - 0.7**4)
        assert (visible == n).double().mean().item() == pytest.approx(chance, abs=0.012)


@pytest.mark.parametrize("form", ["analytic", "learned"])
def test_law_of_a_network_is_normalised_and_agrees_with_the_objective(form):
    model = tiny_backbone(vocab_size=3, mask_index=2, trunk="native", num_components=2)
    xt, xs = torch.tensor([[2, 0, 2]]), torch.tensor([[1, 0, 2]])
    logw, logp = network_law(model, form)(xt, 0.25, 0.75)
    assert torch.allclose(logp.exp().sum(-1), torch.ones(1, 2, 3, dtype=torch.float64))
    masked = xt == 2
    ell = (logp.gather(-1, xs[:, None, :, None].expand(1, 2, 3, 1)).squeeze(-1) * masked).sum(-1)
    t, s = (torch.tensor([x], dtype=torch.float64) for x in (0.25, 0.75))
    scores = two_time_scores(model, xt, xs, masked, t, s, form, HeadSettings("full"))
    expected = log_mixture(scores.logw_BM, scores.logp_BML.sum(-1))
    assert log_mixture(logw, ell).item() == pytest.approx(expected.item(), abs=1e-6)


def test_text_network_without_a_target_time():
    """A checkpoint of the clean-endpoint objective: told sigma by its own rule, no s."""
    model = tiny_backbone(num_components=3)
    law = network_law(model, "analytic", process_sigma=torch.zeros_like, two_time=False)

    def draw(n, seed):
        return torch.randint(3, 7, (n, 4), generator=torch.Generator().manual_seed(seed))

    found = information_at(law, draw, 2, 0.25, 1.0, states=4, samples=400)
    assert math.isfinite(found.information.value)
    assert 0 <= found.information.value <= found.information_ceiling

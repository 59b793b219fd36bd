"""The mixture kernel against enumeration and closed forms."""

from __future__ import annotations

import math

import pytest
import torch

from lkf_plugin import kernel
from lkf_plugin.latents.sequence import Sequence, SequencePotentials


@pytest.fixture
def scores() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    logw_BM = torch.log_softmax(torch.randn(4, 3, dtype=torch.float64), -1)
    logp_BMLV = torch.log_softmax(torch.randn(4, 3, 2, 5, dtype=torch.float64), -1)
    return logw_BM, logp_BMLV


def test_log_mixture_sums_to_one_over_all_sequences(scores):
    logw_BM, logp_BMLV = scores
    total_B = torch.zeros(4, dtype=torch.float64)
    for a in range(5):
        for b in range(5):
            ell_BM = logp_BMLV[:, :, 0, a] + logp_BMLV[:, :, 1, b]
            total_B += kernel.log_mixture(logw_BM, ell_BM).exp()
    torch.testing.assert_close(total_B, torch.ones_like(total_B))


def test_responsibilities_are_the_posterior_and_the_gradient(scores):
    logw_BM, logp_BMLV = scores
    ell_BM = logp_BMLV[:, :, :, 1].sum(-1).requires_grad_()
    gamma_BM = kernel.responsibilities(logw_BM, ell_BM)
    joint_BM = (logw_BM + ell_BM).exp()
    torch.testing.assert_close(gamma_BM, joint_BM / joint_BM.sum(-1, keepdim=True))
    (grad_BM,) = torch.autograd.grad(-kernel.log_mixture(logw_BM, ell_BM).sum(), ell_BM)
    torch.testing.assert_close(grad_BM, -gamma_BM)


def test_marginals_agree_and_normalise(scores):
    logw_BM, logp_BMLV = scores
    marginal_BLV = kernel.marginal_log_probs(logw_BM, logp_BMLV)
    torch.testing.assert_close(marginal_BLV.exp().sum(-1), torch.ones(4, 2, dtype=torch.float64))
    token_BL = kernel.marginal_token_log_probs(logw_BM, logp_BMLV[..., 3])
    torch.testing.assert_close(token_BL, marginal_BLV[..., 3])


def test_entropy_takes_zero_log_zero_as_zero():
    log_prob = torch.tensor([0.0, -math.inf])
    assert kernel.entropy(log_prob) == 0
    assert kernel.entropy(torch.tensor([0.5, 0.5]).log()).item() == pytest.approx(math.log(2))


def regularizer(logw_BM: torch.Tensor, *lambdas: float) -> torch.Tensor:
    structure = Sequence(logw_BM.shape[1])
    return structure.regularizer(SequencePotentials(logw_BM), *lambdas)


def test_regularizer_against_its_formula():
    w_BM = torch.tensor([[0.9, 0.1], [0.2, 0.8]], dtype=torch.float64)

    def h(*p: float) -> float:
        return -sum(x * math.log(x) for x in p)

    expected = -0.1 * h(0.55, 0.45) - 0.3 * (h(0.9, 0.1) + h(0.2, 0.8)) / 2
    assert regularizer(w_BM.log(), 0.1, -0.3).item() == pytest.approx(expected)


def test_regularizer_has_a_finite_gradient_when_a_weight_underflows():
    logits = torch.tensor([[0.0, -1000.0]], requires_grad=True)
    regularizer(torch.log_softmax(logits, -1), 0.1, -0.1).backward()
    assert torch.isfinite(logits.grad).all()


def test_one_component_is_exact():
    logw_B1 = torch.log_softmax(torch.randn(5, 1), -1)
    ell_B1 = -100 * torch.rand(5, 1)
    assert torch.equal(kernel.log_mixture(logw_B1, ell_B1), ell_B1[:, 0])
    assert regularizer(logw_B1, 0.1, -0.1) == 0

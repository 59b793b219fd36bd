"""SUBS against MDLM's arrays and its two properties."""

from __future__ import annotations

import pytest
import torch

from lkf_plugin.subs import subs_log_probs
from tests.golden_arrays import SUBS_FILES, assert_matches, load


@pytest.mark.parametrize("name", SUBS_FILES)
def test_log_probs_are_mdlm_s(name):
    g = load(name)
    before = g["logits"].clone()
    log_probs = subs_log_probs(g["logits"], g["xt"], int(g["mask_index"]))
    assert_matches(log_probs, g["log_probs"], "log_probs")
    assert torch.equal(g["logits"], before)


def test_no_mask_probability_and_carry_over():
    torch.manual_seed(0)
    xt = torch.tensor([[3, 1, 3]])
    prob = subs_log_probs(torch.randn(1, 3, 5), xt, mask_index=3).exp()
    assert (prob[..., 3] == 0).all()
    torch.testing.assert_close(prob.sum(-1), torch.ones(1, 3))
    assert torch.equal(prob[0, 1], torch.eye(5)[1])


def test_idempotent_so_that_marginals_pass_through():
    torch.manual_seed(0)
    xt = torch.tensor([[3, 1, 3]])
    once = subs_log_probs(torch.randn(1, 3, 5, dtype=torch.float64), xt, 3)
    twice = subs_log_probs(once, xt, 3)
    torch.testing.assert_close(once.exp(), twice.exp())


def test_half_precision_is_raised():
    out = subs_log_probs(torch.randn(1, 2, 5, dtype=torch.bfloat16), torch.tensor([[0, 3]]), 3)
    assert out.dtype == torch.float32

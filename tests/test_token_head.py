"""Every head backend against float64 autograd: values and weighted gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from lkf_plugin.errors import UserError
from lkf_plugin.token_head import BACKENDS, token_logprob

N, D, V, MASK = 13, 6, 11, 4
has_torch_backend = hasattr(F, "linear_cross_entropy")
backends = [
    pytest.param(
        b, marks=pytest.mark.skipif(b == "torch" and not has_torch_backend, reason="old torch")
    )
    for b in BACKENDS
]


def inputs(dtype=torch.float64, bias=True):
    torch.manual_seed(0)
    h = torch.randn(N, D, dtype=torch.float64)
    w = torch.randn(V, D, dtype=torch.float64)
    b = torch.randn(V, dtype=torch.float64) if bias else None
    target = torch.randint(V - 1, (N,))
    target[target >= MASK] += 1
    weight = torch.randn(N, dtype=torch.float64)
    weight[::3] = 0
    leaves = [x.to(dtype).requires_grad_() if x is not None else None for x in (h, w, b)]
    return leaves, target, weight


def reference(leaves, target, mask):
    h, w, b = (None if x is None else x.double() for x in leaves)
    logits = F.linear(h, w, b)
    if mask is not None:
        logits = torch.cat((logits[:, :mask], logits[:, mask + 1 :]), 1)
        target = torch.where(target > mask, target - 1, target)
    return torch.log_softmax(logits, -1).gather(-1, target[:, None]).squeeze(-1)


def gradients(out, weight, leaves):
    live = [x for x in leaves if x is not None]
    return torch.autograd.grad((out * weight.to(out.dtype)).sum(), live)


@pytest.mark.parametrize("backend", backends)
@pytest.mark.parametrize("chunk_rows", [1, 5, 13, 64])
@pytest.mark.parametrize("mask", [MASK, None])
@pytest.mark.parametrize("bias", [True, False])
def test_values_and_weighted_gradients_in_float64(backend, chunk_rows, mask, bias):
    leaves, target, weight = inputs(bias=bias)
    expected = reference(leaves, target, mask)
    actual = token_logprob(*leaves, target, mask, backend, chunk_rows)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
    for a, e in zip(
        gradients(actual, weight, leaves), gradients(expected, weight, leaves), strict=True
    ):
        torch.testing.assert_close(a, e, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("backend", backends)
def test_float32_stays_close_to_float64(backend):
    leaves, target, weight = inputs(torch.float32)
    actual = token_logprob(*leaves, target, MASK, backend, 4)
    expected = reference(leaves, target, MASK)
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=1e-5)
    for a, e in zip(
        gradients(actual, weight, leaves), gradients(expected, weight, leaves), strict=True
    ):
        torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", ["full", "chunked"])
def test_under_bf16_autocast_only_the_product_is_half_precision(backend):
    leaves, target, weight = inputs(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        actual = token_logprob(*leaves, target, MASK, backend, 4)
    assert actual.dtype == torch.float32
    h, w, b = leaves
    with torch.autocast("cpu", torch.bfloat16):
        logits = F.linear(h, w, b).float()
    logits[:, MASK] = -torch.inf
    rows = torch.log_softmax(logits, -1).gather(-1, target[:, None]).squeeze(-1)
    torch.testing.assert_close(actual, rows, rtol=1e-6, atol=1e-6)
    for a, e in zip(
        gradients(actual, weight, leaves), gradients(rows, weight, leaves), strict=True
    ):
        torch.testing.assert_close(a, e, rtol=3e-2, atol=3e-2)


def test_gradcheck_of_the_chunked_backend():
    leaves, target, _ = inputs()
    assert torch.autograd.gradcheck(
        lambda h, w, b: token_logprob(h, w, b, target, MASK, "chunked", 5), leaves
    )


def test_rows_of_zero_weight_get_a_zero_gradient():
    leaves, target, weight = inputs()
    out = token_logprob(*leaves, target, MASK, "chunked", 4)
    grad_h = gradients(out, weight, leaves)[0]
    assert (grad_h[weight == 0] == 0).all() and (grad_h[weight != 0] != 0).any()


def test_no_rows_at_all():
    leaves, _, _ = inputs()
    h, w, b = leaves
    none = torch.empty(0, dtype=torch.int64)
    for backend in ("full", "chunked"):
        out = token_logprob(h[:0], w, b, none, MASK, backend)
        assert out.shape == (0,)
        out.sum().backward()


def test_unknown_backend_is_named():
    leaves, target, _ = inputs()
    with pytest.raises(UserError, match="token_head=liquid"):
        token_logprob(*leaves, target, MASK, "liquid")

"""Every head backend against float64 autograd: values and weighted gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from lkf_plugin.errors import UserError
from lkf_plugin.token_head import fused, tiled
from lkf_plugin.token_head.logprob import (
    BACKENDS,
    token_logprob,
    weighted_token_logprob,
)

N, D, V, MASK = 13, 6, 11, 4
CPU_BACKENDS = ("full", "chunked", "torch")
GPU_PACKAGES = {"liger": "liger_kernel", "cce": "cut_cross_entropy"}
has_torch_backend = hasattr(F, "linear_cross_entropy")
backends = [
    pytest.param(
        b, marks=pytest.mark.skipif(b == "torch" and not has_torch_backend, reason="old torch")
    )
    for b in CPU_BACKENDS
]


@pytest.fixture(params=["one tile", "tiles of 4 columns"], autouse=True)
def columns(request, monkeypatch):
    """Every test runs with the vocabulary in one tile and in several."""
    if request.param != "one tile":
        monkeypatch.setattr(tiled, "CPU_COLUMNS", 4)


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
        total, logp = weighted_token_logprob(h[:0], w, b, none, h[:0, 0], MASK, backend)
        assert total == 0 and logp.shape == (0,)
        total.backward()


@pytest.mark.parametrize("backend", backends)
@pytest.mark.parametrize("chunk_rows", [1, 5, 64])
@pytest.mark.parametrize("mask", [MASK, None])
@pytest.mark.parametrize("bias", [True, False])
def test_weighted_sum_with_known_weights(backend, chunk_rows, mask, bias):
    leaves, target, weight = inputs(bias=bias)
    expected = reference(leaves, target, mask)
    total, logp = weighted_token_logprob(*leaves, target, weight, mask, backend, chunk_rows)
    assert not logp.requires_grad
    torch.testing.assert_close(logp, expected.detach(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(total, (weight * expected).sum())
    live = [x for x in leaves if x is not None]
    found = torch.autograd.grad(total / 7, live)  # any factor may follow
    for a, e in zip(found, gradients(expected, weight / 7, leaves), strict=True):
        torch.testing.assert_close(a, e, rtol=1e-11, atol=1e-12)


def test_weighted_sum_under_bf16_autocast():
    leaves, target, weight = inputs(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        total, logp = weighted_token_logprob(*leaves, target, weight.float(), MASK, "chunked", 4)
        same = token_logprob(*leaves, target, MASK, "chunked", 4)
    assert total.dtype == logp.dtype == torch.float32
    torch.testing.assert_close(logp, same.detach(), rtol=1e-6, atol=1e-6)
    for a, e in zip(
        torch.autograd.grad(total, leaves), gradients(same, weight, leaves), strict=True
    ):
        torch.testing.assert_close(a, e, rtol=3e-2, atol=3e-2)


def test_weighted_sum_has_one_backward_pass():
    leaves, target, weight = inputs()
    total, _ = weighted_token_logprob(*leaves, target, weight, MASK)
    torch.autograd.grad(total, leaves, retain_graph=True)
    with pytest.raises(RuntimeError, match="runs once"):
        torch.autograd.grad(total, leaves)


def test_without_a_graph_nothing_is_saved():
    leaves, target, _ = inputs()
    graph = token_logprob(*leaves, target, MASK, "chunked", 4)
    with torch.no_grad():
        assert torch.equal(token_logprob(*leaves, target, MASK, "chunked", 4), graph)
        total, logp = weighted_token_logprob(*leaves, target, graph.detach(), MASK, "chunked", 4)
    assert total.grad_fn is None and torch.equal(logp, graph)


def test_logits_far_from_zero_do_not_overflow():
    h = torch.full((3, D), 40.0)
    w = torch.linspace(-9, 9, V)[:, None].expand(V, D).contiguous()
    target = torch.tensor([0, 5, 10])
    found = token_logprob(h, w, None, target, MASK, "chunked")
    exact = reference([h, w, None], target, MASK)
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-3)


# --- optional GPU packages -----------------------------------------------------------------------


@pytest.mark.parametrize("backend", list(GPU_PACKAGES))
def test_gpu_backends_agree_with_the_chunked_one(backend):
    pytest.importorskip(GPU_PACKAGES[backend])
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    torch.manual_seed(0)
    rows, width, vocab = 300, 64, 1000
    leaves = [
        torch.randn(shape, device="cuda").mul_(0.3).requires_grad_()
        for shape in ((rows, width), (vocab, width), (vocab,))
    ]
    target = torch.randint(MASK + 1, vocab, (rows,), device="cuda")
    weight = torch.randn(rows, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        found = token_logprob(*leaves, target, MASK, backend)
        expected = token_logprob(*leaves, target, MASK, "chunked")
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=5e-2)
    for a, e in zip(
        gradients(found, weight, leaves), gradients(expected, weight, leaves), strict=True
    ):
        assert (a - e).norm() <= 2e-2 * e.norm()


def test_a_missing_package_or_gpu_is_told(monkeypatch):
    leaves, target, _ = inputs(torch.float32)
    for version in ("0.8.1", "0.7", "0.8.2.dev3"):
        monkeypatch.setattr(fused.importlib.metadata, "version", lambda name, v=version: v)
        with pytest.raises(UserError, match=f"found {version}"):
            token_logprob(*leaves, target, MASK, "liger")
    for version in ("0.8.2", "0.10", "1.0.post1"):
        monkeypatch.setattr(fused.importlib.metadata, "version", lambda name, v=version: v)
        with pytest.raises(UserError, match="liger runs on a CUDA GPU only"):
            token_logprob(*leaves, target, MASK, "liger")
    monkeypatch.setattr(fused, "installed_version", lambda package: None)
    with pytest.raises(UserError, match="found None"):
        token_logprob(*leaves, target, MASK, "liger")
    monkeypatch.setattr(fused.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install cut-cross-entropy"):
        token_logprob(*leaves, target, MASK, "cce")
    monkeypatch.setattr(fused.importlib.util, "find_spec", lambda name: name)
    with pytest.raises(UserError, match="cce runs on a CUDA GPU only"):
        token_logprob(*leaves, target, MASK, "cce")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_ban_is_finite_in_every_dtype(dtype):
    (_, w, b), _, _ = inputs(torch.float32)
    bias = fused.banned_bias(w, b, MASK, dtype)
    assert torch.isfinite(bias).all() and bias[MASK] < -1e4 and bias.dtype == dtype
    assert fused.banned_bias(w, None, None, dtype) is None


def test_every_backend_is_tested():
    assert set(BACKENDS) == {*CPU_BACKENDS, *GPU_PACKAGES}


def test_unknown_backend_is_named():
    leaves, target, _ = inputs()
    with pytest.raises(UserError, match="token_head=liquid"):
        token_logprob(*leaves, target, MASK, "liquid")

"""All attention implementations compute the same function."""

from __future__ import annotations

import pytest
import torch

from lkf_plugin.backbone import attention


def qkv(dtype=torch.float64):
    torch.manual_seed(0)
    return [torch.randn(2, 5, 3, 4, dtype=dtype, requires_grad=True) for _ in range(3)]


def by_hand(q, k, v):
    scores = torch.einsum("rlhe,rmhe->rhlm", q, k) / 2.0
    return torch.einsum("rhlm,rmhe->rlhe", scores.softmax(-1), v)


@pytest.mark.parametrize("name", ["sdpa", "matmul"])
def test_forward_and_backward_by_hand(name, monkeypatch):
    monkeypatch.setattr(attention, "choose_implementation", lambda device, dtype: name)
    x = qkv()
    out, expected = attention.attend(*x), by_hand(*x)
    torch.testing.assert_close(out, expected)
    for a, e in zip(
        torch.autograd.grad(out.square().sum(), x),
        torch.autograd.grad(expected.square().sum(), x),
        strict=True,
    ):
        torch.testing.assert_close(a, e)


def test_bf16_on_a_cpu_avoids_sdpa():
    assert attention.choose_implementation(torch.device("cpu"), torch.bfloat16) == "matmul"
    assert attention.choose_implementation(torch.device("cpu"), torch.float32) == "sdpa"


def test_rotation_keeps_lengths_and_shows_only_relative_positions():
    q, k, _ = qkv()
    cos_sin = tuple(a.double() for a in attention.Rotary(4)(5))
    rq, rk = attention.rotate(q, cos_sin), attention.rotate(k, cos_sin)
    torch.testing.assert_close(rq.norm(dim=-1), q.norm(dim=-1))
    constant_q = attention.rotate(q[:, :1].expand(-1, 5, -1, -1), cos_sin)
    constant_k = attention.rotate(k[:, :1].expand(-1, 5, -1, -1), cos_sin)
    dots = torch.einsum("rlhe,rmhe->rhlm", constant_q, constant_k)
    torch.testing.assert_close(dots[..., 0, 1], dots[..., 2, 3], rtol=1e-5, atol=1e-6)
    assert not torch.allclose(dots[..., 0, 1], dots[..., 0, 2])
    assert rk.shape == k.shape

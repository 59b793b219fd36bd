"""Attention with rotary positions: one seam over flash-attn, SDPA and plain matmul.

Shape legend: R rows (sequences), L positions, H heads, E head width.
"""

from __future__ import annotations

import functools
import importlib.util

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@functools.cache
def flash_attn_installed() -> bool:
    """Whether the real flash-attn package can be imported."""
    spec = importlib.util.find_spec("flash_attn")
    return spec is not None and spec.origin is not None


def choose_implementation(device: torch.device, dtype: torch.dtype) -> str:
    """The implementation for a device and dtype.

    flash-attn takes half precision on CUDA. The backward pass of bf16 SDPA on a CPU is several
    times slower than the plain product, so that case is done by hand.
    """
    half = dtype in (torch.float16, torch.bfloat16)
    if device.type == "cuda" and half and flash_attn_installed():
        return "flash"
    if device.type == "cpu" and half:
        return "matmul"
    return "sdpa"


def attend(q_RLHE: Tensor, k_RLHE: Tensor, v_RLHE: Tensor, causal: bool = False) -> Tensor:
    """softmax(q k^T / sqrt(E)) v, shape [R, L, H, E]; ``causal`` hides what comes later."""
    implementation = choose_implementation(q_RLHE.device, q_RLHE.dtype)
    if implementation == "flash":
        from flash_attn import flash_attn_func

        return flash_attn_func(q_RLHE, k_RLHE, v_RLHE, causal=causal)
    q, k, v = (x.transpose(1, 2) for x in (q_RLHE, k_RLHE, v_RLHE))
    if implementation == "matmul":
        scores = (q @ k.transpose(-1, -2)).mul(q.shape[-1] ** -0.5)
        if causal:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
            scores = scores.masked_fill(later, -torch.inf)
        return (scores.softmax(dim=-1) @ v).transpose(1, 2)
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2)


class Rotary(nn.Module):
    """Rotary position angles, base 10,000 (half-split layout, as in MDLM)."""

    inv_freq: Tensor

    def __init__(self, head_dim: int, base: float = 10_000.0) -> None:
        super().__init__()
        exponents = torch.arange(0, head_dim, 2).float() / head_dim
        self.register_buffer("inv_freq", 1.0 / base**exponents)

    def forward(self, length: int) -> tuple[Tensor, Tensor]:
        """(cos, sin), each [L, E / 2]."""
        positions = torch.arange(length, device=self.inv_freq.device).type_as(self.inv_freq)
        angles = torch.outer(positions, self.inv_freq)
        return angles.cos(), angles.sin()


def rotate(x_RLHE: Tensor, cos_sin: tuple[Tensor, Tensor]) -> Tensor:
    """Turns each pair (x_e, x_{e + E/2}) by its position's angle."""
    cos, sin = (a.to(x_RLHE.dtype)[:, None, :] for a in cos_sin)
    first, second = x_RLHE.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)

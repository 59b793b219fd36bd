"""Small layers that both trunks use."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def modulate(x_RLD: Tensor, shift_R1D: Tensor, scale_R1D: Tensor) -> Tensor:
    """FiLM: x (1 + scale) + shift, broadcast over positions."""
    return x_RLD * (1 + scale_R1D) + shift_R1D


class WeightOnlyLayerNorm(nn.Module):
    """LayerNorm with a weight and no bias, computed in float32 or better (MDLM, LayerNorm)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            wide = x if x.dtype == torch.float64 else x.float()
            x = F.layer_norm(wide, (wide.shape[-1],))
        return x * self.weight


class TimestepEmbedder(nn.Module):
    """Sinusoidal features of a scalar and a two-layer MLP (MDLM, TimestepEmbedder)."""

    def __init__(self, cond_dim: int, num_features: int = 256) -> None:
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(num_features, cond_dim), nn.SiLU(), nn.Linear(cond_dim, cond_dim)
        )
        self.num_features = num_features

    def features(self, t_B: Tensor) -> Tensor:
        """cos and sin of t at geometric frequencies 1 .. 1/10000, shape [B, num_features]."""
        half = self.num_features // 2
        # the order (log times step, then divided) is MDLM's, so that the features are its bits
        freqs = torch.exp(-math.log(10_000) * torch.arange(half, dtype=torch.float32) / half)
        angles = t_B[:, None].float() * freqs.to(t_B.device)[None]
        return torch.cat((angles.cos(), angles.sin()), dim=-1)

    def forward(self, t_B: Tensor) -> Tensor:
        features = self.features(t_B)
        return self.mlp(features.to(next(self.mlp.parameters()).dtype))


class TokenEmbedding(nn.Module):
    """Token table with MDLM's kaiming-uniform start."""

    def __init__(self, vocab_size: int, dim: int) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(vocab_size, dim))
        nn.init.kaiming_uniform_(self.embedding, a=math.sqrt(5))

    def forward(self, x_BL: Tensor) -> Tensor:
        return self.embedding[x_BL]

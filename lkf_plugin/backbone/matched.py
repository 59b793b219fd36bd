"""The ``matched`` trunk: MDLM's diffusion transformer, name for name and bit for bit.

* weight-only LayerNorm in float32, biased tanh-GELU MLP, untied biased head
* rotary attention, no causal mask, dropout on both branches
* adaLN-zero: every block and the output are modulated by SiLU(embedded sigma)

Parameters are created in MDLM's order, so the same seed gives the same weights.
Source: MDLM, models/dit.py.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from lkf_plugin.backbone.attention import Rotary
from lkf_plugin.backbone.layers import (
    TimestepEmbedder,
    TokenEmbedding,
    WeightOnlyLayerNorm,
    modulate,
)
from lkf_plugin.backbone.stack import AdaLNBlock, Film
from lkf_plugin.backbone.trunk import Trunk, TrunkState


def zeroed(layer: nn.Linear) -> nn.Linear:
    """The layer with weight and bias set to zero, after it drew its random start."""
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


class MatchedBlock(AdaLNBlock):
    """One adaLN transformer block."""

    mlp: nn.Sequential

    def __init__(self, dim: int, n_heads: int, cond_dim: int, dropout: float) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.dropout = dropout
        self.norm1 = WeightOnlyLayerNorm(dim)
        self.attn_qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.attn_out = nn.Linear(dim, dim, bias=False)
        self.norm2 = WeightOnlyLayerNorm(dim)
        self.mlp = nn.Sequential(
            nn.Linear(dim, 4 * dim), nn.GELU(approximate="tanh"), nn.Linear(4 * dim, dim)
        )
        self.adaLN_modulation = zeroed(nn.Linear(cond_dim, 6 * dim))

    @property
    def mlp_out(self) -> nn.Linear:
        layer = self.mlp[2]
        assert isinstance(layer, nn.Linear)
        return layer

    @staticmethod
    def parts(outputs: Tensor) -> Film:
        return Film(*outputs.chunk(6, dim=-1))


class MatchedOutput(nn.Module):
    """Final norm, modulation and the untied head, which starts at zero."""

    def __init__(self, dim: int, vocab_size: int, cond_dim: int) -> None:
        super().__init__()
        self.norm_final = WeightOnlyLayerNorm(dim)
        self.linear = zeroed(nn.Linear(dim, vocab_size))
        self.adaLN_modulation = zeroed(nn.Linear(cond_dim, 2 * dim))


class MatchedTrunk(Trunk):
    """MDLM's DIT without its config object.

    Args:
        vocab_size: V, the mask included.
        hidden_size, cond_dim, n_blocks, n_heads, dropout: as in MDLM's ``model`` config.
        activation_checkpointing: recompute blocks in the backward pass.
    """

    def __init__(
        self,
        vocab_size: int,
        hidden_size: int,
        cond_dim: int,
        n_blocks: int,
        n_heads: int,
        dropout: float,
        activation_checkpointing: bool = False,
    ) -> None:
        super().__init__()
        self.vocab_embed = TokenEmbedding(vocab_size, hidden_size)
        self.sigma_map = TimestepEmbedder(cond_dim)
        self.rotary_emb = Rotary(hidden_size // n_heads)
        self.blocks = nn.ModuleList(
            MatchedBlock(hidden_size, n_heads, cond_dim, dropout) for _ in range(n_blocks)
        )
        self.output_layer = MatchedOutput(hidden_size, vocab_size, cond_dim)
        self.activation_checkpointing = activation_checkpointing

    def embed(self, x_BL: Tensor, sigma_B: Tensor, s_B: Tensor | None = None) -> TrunkState:
        assert s_B is None, "the matched trunk knows one time; the target is the clean end"
        cond_BC = self.sigma_map(sigma_B)
        return TrunkState(self.vocab_embed(x_BL), cond_BC, F.silu(cond_BC))

    def output_hidden(self, h_ND: Tensor, act_RC: Tensor, row_N: Tensor) -> Tensor:
        out = self.output_layer
        shift_RD, scale_RD = out.adaLN_modulation(act_RC).chunk(2, dim=-1)
        return modulate(out.norm_final(h_ND), shift_RD[row_N], scale_RD[row_N])

    def output_logits(self, h_RLD: Tensor, act_RC: Tensor) -> Tensor:
        out = self.output_layer
        shift, scale = out.adaLN_modulation(act_RC)[:, None].chunk(2, dim=2)
        return out.linear(modulate(out.norm_final(h_RLD), shift, scale))

    @property
    def head_weight(self) -> Tensor:
        return self.output_layer.linear.weight

    @property
    def head_bias(self) -> Tensor | None:
        return self.output_layer.linear.bias

    def forward(self, x_BL: Tensor, sigma_B: Tensor) -> Tensor:
        """Logits [B, L, V] at noise ``sigma_B``: MDLM's network as it is."""
        state = self.embed(x_BL, sigma_B)
        h_BLD = self.run_blocks(state.h_BLD, state.act_BC, 0, len(self.blocks))
        return self.output_logits(h_BLD, state.act_BC)

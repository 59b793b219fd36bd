"""The ``native`` trunk: the paper's own block.

* RMSNorm, SwiGLU, rotary attention, learned positions, weight-tied head
* two-time conditioning: t (fraction kept now) and s (fraction kept at the target), each through
  its own embedding, summed
* adaLN with zero-initialised gates, so that a shared block starts as the identity

Source: paper, appendix "Architecture details".
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lkf_plugin.backbone.attention import Rotary
from lkf_plugin.backbone.layers import TimestepEmbedder
from lkf_plugin.backbone.matched import zeroed
from lkf_plugin.backbone.stack import AdaLNBlock, Film
from lkf_plugin.backbone.trunk import Trunk, TrunkState

TIME_SCALE = 1000.0  # times in [0, 1] are spread over the sinusoids' range


class SwiGLU(nn.Module):
    """W_o (SiLU(W_1 z) * W_2 z), width 8/3 D rounded up to a multiple of 32."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        inner = 32 * -(-8 * dim // 96)
        self.w1 = nn.Linear(dim, inner, bias=False)
        self.w2 = nn.Linear(dim, inner, bias=False)
        self.w_out = nn.Linear(inner, dim, bias=False)

    def forward(self, z: Tensor) -> Tensor:
        return self.w_out(F.silu(self.w1(z)) * self.w2(z))


class NativeBlock(AdaLNBlock):
    """u = x + g1 Attn(film(RMSNorm(x))), y = u + g2 SwiGLU(film(RMSNorm(u)))."""

    mlp: SwiGLU

    def __init__(self, dim: int, n_heads: int, cond_dim: int, dropout: float) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.dropout = dropout
        self.norm1 = nn.RMSNorm(dim, eps=1e-6)
        self.attn_qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.attn_out = nn.Linear(dim, dim, bias=False)
        self.norm2 = nn.RMSNorm(dim, eps=1e-6)
        self.mlp = SwiGLU(dim)
        self.adaLN_modulation = zeroed(nn.Linear(cond_dim, 6 * dim))

    @property
    def mlp_out(self) -> nn.Linear:
        return self.mlp.w_out

    @staticmethod
    def parts(outputs: Tensor) -> Film:
        scale_a, shift_a, gate_a, scale_m, shift_m, gate_m = outputs.chunk(6, dim=-1)
        return Film(shift_a, scale_a, gate_a, shift_m, scale_m, gate_m)


class NativeTrunk(Trunk):
    """The paper's trunk.

    Args:
        vocab_size: V, the mask included.
        length: longest sequence (learned positions).
        hidden_size, cond_dim, n_blocks, n_heads, dropout: as in MDLM's ``model`` config.
        activation_checkpointing: recompute blocks in the backward pass.
    """

    def __init__(
        self,
        vocab_size: int,
        length: int,
        hidden_size: int,
        cond_dim: int,
        n_blocks: int,
        n_heads: int,
        dropout: float,
        activation_checkpointing: bool = False,
    ) -> None:
        super().__init__()
        self.token_embed = nn.Embedding(vocab_size, hidden_size)
        self.position_embed = nn.Embedding(length, hidden_size)
        # tied to the head: D^-1/2 gives logits of unit spread. At 0.02 the token is drowned by the
        # blocks' output, training is several times slower and the latent stays silent longer.
        nn.init.normal_(self.token_embed.weight, std=hidden_size**-0.5)
        nn.init.normal_(self.position_embed.weight, std=hidden_size**-0.5)
        self.t_map = TimestepEmbedder(cond_dim)
        self.s_map = TimestepEmbedder(cond_dim)
        self.rotary_emb = Rotary(hidden_size // n_heads)
        self.blocks = nn.ModuleList(
            NativeBlock(hidden_size, n_heads, cond_dim, dropout) for _ in range(n_blocks)
        )
        self.norm_final = nn.RMSNorm(hidden_size, eps=1e-6)
        self.activation_checkpointing = activation_checkpointing

    def embed(self, x_BL: Tensor, sigma_B: Tensor, s_B: Tensor | None = None) -> TrunkState:
        t_B = torch.exp(-sigma_B)
        s_B = torch.ones_like(t_B) if s_B is None else s_B
        cond_BC = self.t_map(TIME_SCALE * t_B) + self.s_map(TIME_SCALE * s_B)
        positions = self.position_embed.weight[: x_BL.shape[1]]
        return TrunkState(self.token_embed(x_BL) + positions, cond_BC, F.silu(cond_BC))

    def output_hidden(self, h_ND: Tensor, act_RC: Tensor, row_N: Tensor) -> Tensor:
        return self.norm_final(h_ND)

    def output_logits(self, h_RLD: Tensor, act_RC: Tensor) -> Tensor:
        return F.linear(self.norm_final(h_RLD), self.head_weight)

    @property
    def head_weight(self) -> Tensor:
        return self.token_embed.weight

    @property
    def head_bias(self) -> Tensor | None:
        return None

"""The autoregressive transformer: MDLM's block without conditioning, causal.

Parameter names are MDLM's, less its sigma map and its modulations.
Source: MDLM, models/dit.py with causal=True.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lkf_plugin.backbone.attention import Rotary, attend, rotate
from lkf_plugin.backbone.dropout import drop
from lkf_plugin.backbone.layers import TokenEmbedding, WeightOnlyLayerNorm
from lkf_plugin.backbone.matched import zeroed


class CausalBlock(nn.Module):
    """x + Attn(norm(x)), then x + MLP(norm(x)); each position sees those before it and itself."""

    def __init__(self, dim: int, n_heads: int, dropout: float) -> None:
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

    def forward(self, x_BLD: Tensor, cos_sin: tuple[Tensor, Tensor]) -> Tensor:
        qkv = self.attn_qkv(self.norm1(x_BLD)).unflatten(-1, (3, self.n_heads, -1))
        q, k, v = qkv.unbind(dim=2)
        seen = attend(rotate(q, cos_sin), rotate(k, cos_sin), v, causal=True).flatten(-2)
        x_BLD = x_BLD + drop(self.attn_out(seen), self.dropout, self.training, None)
        mixed = self.mlp(self.norm2(x_BLD))
        return x_BLD + drop(mixed, self.dropout, self.training, None)


class CausalOutput(nn.Module):
    """Final norm and the untied head, which starts at zero: uniform predictions."""

    def __init__(self, dim: int, vocab_size: int) -> None:
        super().__init__()
        self.norm_final = WeightOnlyLayerNorm(dim)
        self.linear = zeroed(nn.Linear(dim, vocab_size))


class CausalTransformer(nn.Module):
    """Token ids to logits of the next one.

    Args:
        vocab_size: V, the mask included.
        hidden_size, n_blocks, n_heads, dropout: as in the ``model`` config.
        activation_checkpointing: recompute blocks in the backward pass.
    """

    def __init__(
        self,
        vocab_size: int,
        hidden_size: int,
        n_blocks: int,
        n_heads: int,
        dropout: float,
        activation_checkpointing: bool = False,
    ) -> None:
        super().__init__()
        self.vocab_embed = TokenEmbedding(vocab_size, hidden_size)
        self.rotary_emb = Rotary(hidden_size // n_heads)
        self.blocks = nn.ModuleList(
            CausalBlock(hidden_size, n_heads, dropout) for _ in range(n_blocks)
        )
        self.output_layer = CausalOutput(hidden_size, vocab_size)
        self.activation_checkpointing = activation_checkpointing

    def hidden(self, x_BL: Tensor) -> Tensor:
        """Input of the head, [B, L, D]."""
        h_BLD = self.vocab_embed(x_BL)
        cos_sin = self.rotary_emb(x_BL.shape[1])
        for block in self.blocks:
            if self.activation_checkpointing and torch.is_grad_enabled():
                h_BLD = checkpoint(block, h_BLD, cos_sin, use_reentrant=False)
            else:
                h_BLD = block(h_BLD, cos_sin)
        return self.output_layer.norm_final(h_BLD)

    def forward(self, x_BL: Tensor) -> Tensor:
        """Logits [B, L, V]; those at position l depend on positions up to l."""
        return self.output_layer.linear(self.hidden(x_BL))

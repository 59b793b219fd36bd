"""Hidden states of blocks, from which the potentials of block latents are read.

Shape legend: B sequences, L positions, G groups, K sequence latents, D width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lkf_plugin.latents.blocks import Blocks
from lkf_plugin.latents.router import Router


class BlockFeatures(nn.Module):
    """f_gk = SiLU(A LN(mean_{i in g} h_i) + B LN(mean_i h_i) + c_k), [B, G, K, D].

    The means are normed without parameters, since a residual stream grows with depth and training.
    c_k, the embedding of the sequence latent, falls away where there is one.
    """

    def __init__(self, dim: int, blocks: Blocks, sequence_components: int) -> None:
        super().__init__()
        self.blocks = blocks
        self.local = nn.Linear(dim, dim)
        self.whole = nn.Linear(dim, dim, bias=False)
        self.sequence_emb: nn.Embedding | None = None
        if sequence_components > 1:
            self.sequence_emb = nn.Embedding(sequence_components, dim)

    def forward(self, h_BLD: Tensor) -> Tensor:
        local_BGD = self.local(_normed(self.blocks.means(h_BLD)))
        whole_B1D = self.whole(_normed(h_BLD.mean(1, keepdim=True)))
        sum_BGKD = (local_BGD + whole_B1D)[:, :, None]
        if self.sequence_emb is not None:
            sum_BGKD = sum_BGKD + self.sequence_emb.weight
        return F.silu(sum_BGKD)


class BlockRouter(Router):
    """The router of the sequence latent (LKF's, under the same names) with features of blocks.

    Subclasses read the potentials of the blocks off ``features``, with last layers at zero. Blocks
    without a latent of their own have neither, and the network is LKF's.
    """

    def __init__(
        self, dim: int, blocks: Blocks, sequence_components: int, block_components: int
    ) -> None:
        super().__init__(dim, sequence_components)
        if sequence_components == 1:  # log w = 0 whatever they hold
            self.requires_grad_(False)
        self.features: BlockFeatures | None = None
        if block_components > 1:
            self.features = BlockFeatures(dim, blocks, sequence_components)

    def read(self, h_BLD: Tensor) -> tuple[Tensor, Tensor | None]:
        """(log w [B, K], features [B, G, K, D]), float32 or better whatever the autocast."""
        if self.features is None:
            return Router.forward(self, h_BLD), None
        with torch.autocast(h_BLD.device.type, enabled=False):
            features_BGKD = self.features(h_BLD.to(self.hidden.weight.dtype))
        return Router.forward(self, h_BLD), features_BGKD


def zero_linear(inputs: int, outputs: int) -> nn.Linear:
    """A last layer that starts at zero: uniform log-probabilities."""
    layer = nn.Linear(inputs, outputs)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def _normed(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])

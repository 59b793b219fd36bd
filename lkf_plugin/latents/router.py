"""The pooled router: one mixture weight vector per sequence."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Router(nn.Module):
    """Mean over positions, two-layer MLP, log-softmax over the M components.

    One latent per sequence is what carries correlation between positions; a router at each position
    would fall back to a factorised step. The last layer starts at zero: a uniform prior.
    Source: paper, "Shared trunk, router, latent branch".
    """

    def __init__(self, dim: int, num_components: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, num_components)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, h_BLD: Tensor) -> Tensor:
        """logw_BM in float32 or better whatever the autocast; rows of exp() sum to one."""
        with torch.autocast(h_BLD.device.type, enabled=False):
            pooled = h_BLD.to(self.hidden.weight.dtype).mean(dim=1)
            logits = self.out(F.silu(self.hidden(pooled)))
            return torch.log_softmax(logits, dim=-1)

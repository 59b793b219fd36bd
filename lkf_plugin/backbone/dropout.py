"""Dropout whose draw for a (sequence, component) pair does not depend on which pairs are run.

Two-phase training runs the latent branch twice, first for every pair, some components at a time,
then for some of the pairs; both passes must drop the same activations. So a mask is a function of
(seed, component, block, place in the block), drawn for all sequences of the batch at once.

Shape legend: B sequences, R rows (sequence, component), L positions, N gathered, D width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Keep(NamedTuple):
    """What the two dropouts of a block keep: bool [R, L, D] after attention and after the MLP."""

    attention: Tensor
    mlp: Tensor

    def at(self, row_N: Tensor, position_N: Tensor) -> Keep:
        """The same at gathered positions, [N, D]."""
        return Keep(self.attention[row_N, position_N], self.mlp[row_N, position_N])


def drop(x: Tensor, p: float, training: bool, keep: Tensor | None) -> Tensor:
    """Dropout by a given mask; without one it is torch's own (and MDLM's, bit for bit)."""
    if keep is None:
        return F.dropout(x, p=p, training=training)
    return torch.where(keep, x / (1 - p), 0.0)  # the graph holds the mask as bytes


def draw_keep(h_RLD: Tensor, p: float) -> Keep:
    """Masks from torch's generator, drawn as the block itself would draw them."""
    return Keep(*(torch.empty_like(h_RLD, dtype=torch.bool).bernoulli_(1 - p) for _ in range(2)))


@dataclass
class PairDraw:
    """Dropout masks of (sequence, component) pairs.

    Attributes:
        seed: of this step; the masks are a function of it and of what is asked.
        batch: sequences.
    """

    seed: int
    batch: int

    @staticmethod
    def fresh(batch: int) -> PairDraw:
        """A new seed from torch's CPU generator; no device is asked, so none is waited for."""
        return PairDraw(int(torch.randint(2**62, ())), batch)

    def keep(
        self,
        block: int,
        h_RLD: Tensor,
        p: float,
        row_R: Tensor,
        component_R: Tensor,
        components: range,
    ) -> Keep:
        """Masks for pairs whose components all lie in ``components``."""
        masks = []
        for place in range(2):
            drawn_KBLD = torch.empty(
                len(components), self.batch, *h_RLD.shape[1:], dtype=torch.bool, device=h_RLD.device
            )
            for i, component in enumerate(components):
                generator = torch.Generator(h_RLD.device)
                # a large odd stride keeps the seeds of neighbours apart
                site = (block * 2 + place) * 4099 + component
                generator.manual_seed((self.seed + site * 0x9E3779B97F4A7C15) % 2**63)
                drawn_KBLD[i].bernoulli_(1 - p, generator=generator)
            masks.append(drawn_KBLD[component_R - components.start, row_R])
        return Keep(*masks)

"""What a trunk gives to the latent-kernel backbone: the base of ``matched`` and ``native``.

Shape legend: B sequences, R rows (sequence, component), L positions, D width, C conditioning.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor, nn

from lkf_plugin.backbone.attention import Rotary
from lkf_plugin.backbone.dropout import Keep
from lkf_plugin.backbone.stack import AdaLNBlock, Places, run_stack


class LateBlock(NamedTuple):
    """What all components share of a block whose latent enters behind attention.

    Attributes:
        attention_BLD: what attention adds, before its gate.
        keep_BLD: dropout mask behind the MLP, or None.
    """

    attention_BLD: Tensor
    keep_BLD: Tensor | None

    def of_rows(self, row_R: Tensor) -> LateBlock:
        """For rows of the batch."""
        keep = None if self.keep_BLD is None else self.keep_BLD[row_R]
        return LateBlock(self.attention_BLD[row_R], keep)


class TrunkState(NamedTuple):
    """Output of the shared blocks, the same for every component.

    Attributes:
        h_BLD: residual stream.
        cond_BC: conditioning before its SiLU; the latent embedding is added to it.
        act_BC: SiLU of it, what the blocks see. It is one node of the graph, shared by all
            blocks, so that at M = 1 even gradients are MDLM's bits.
        late: shared parts of the latent blocks, where the latent enters behind attention.
        routed_BLD: what the router reads, where that is not ``h_BLD``.
    """

    h_BLD: Tensor
    cond_BC: Tensor
    act_BC: Tensor
    late: tuple[LateBlock, ...] = ()
    routed_BLD: Tensor | None = None

    def of_rows(self, row_R: Tensor) -> TrunkState:
        """For rows of the batch, in any order and number."""
        late = tuple(block.of_rows(row_R) for block in self.late)
        routed = None if self.routed_BLD is None else self.routed_BLD[row_R]
        return TrunkState(self.h_BLD[row_R], self.cond_BC[row_R], self.act_BC[row_R], late, routed)


class BranchState(NamedTuple):
    """Output of the latent blocks for some (sequence, component) rows, before the final norm.

    Attributes:
        h_RLD: residual stream.
        act_RC: activated conditioning of the output modulation.
    """

    h_RLD: Tensor
    act_RC: Tensor


class Trunk(nn.Module, ABC):
    """Two stacks of blocks around the point where the latent enters.

    Attributes:
        blocks: each an ``AdaLNBlock``.
        rotary_emb: of their attention.
        activation_checkpointing: blocks are computed again in the backward pass.
    """

    blocks: nn.ModuleList
    rotary_emb: Rotary
    activation_checkpointing: bool

    @abstractmethod
    def embed(self, x_BL: Tensor, sigma_B: Tensor, s_B: Tensor | None = None) -> TrunkState:
        """Embedded tokens and conditioning; ``s_B`` is the target time in the paper's clock."""

    def run_blocks(
        self,
        h_RLD: Tensor,
        act_RC: Tensor,
        first: int,
        last: int,
        keep_of: Callable[[int, Tensor], Keep | None] | None = None,
        at: Places | None = None,
    ) -> Tensor:
        """Blocks ``first`` to ``last`` (exclusive); ``keep_of`` and ``at`` as in ``run_stack``."""
        return run_stack(
            self.blocks[first:last],
            h_RLD,
            act_RC,
            self.rotary_emb(h_RLD.shape[1]),
            self.activation_checkpointing,
            keep_of,
            at,
        )

    @abstractmethod
    def output_hidden(self, h_ND: Tensor, act_RC: Tensor, row_N: Tensor) -> Tensor:
        """Final norm (and modulation) of gathered positions; ``row_N`` indexes ``act_RC``."""

    @abstractmethod
    def output_logits(self, h_RLD: Tensor, act_RC: Tensor) -> Tensor:
        """Final norm, modulation and head at every position, [R, L, V]."""

    def modulations(self) -> list[nn.Linear]:
        """The adaLN projection of each block."""
        return [block.adaLN_modulation for block in self._own_blocks()]

    def branch_outputs(self) -> list[nn.Linear]:
        """The last projection of every residual branch."""
        return [layer for b in self._own_blocks() for layer in (b.attn_out, b.mlp_out)]

    def _own_blocks(self) -> list[AdaLNBlock]:
        return [block for block in self.blocks if isinstance(block, AdaLNBlock)]

    @property
    @abstractmethod
    def head_weight(self) -> Tensor:
        """[V, D]."""

    @property
    @abstractmethod
    def head_bias(self) -> Tensor | None:
        """[V] or None."""

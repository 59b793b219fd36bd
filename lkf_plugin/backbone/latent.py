"""The latent-kernel backbone: a trunk, the latents' potentials, and a late latent branch.

The first ``n_blocks - latent_blocks`` blocks run once per sequence; the last ``latent_blocks`` run
once per (sequence, component) pair with the component's embedding added to the conditioning vector,
which is the only way the latent enters. At M = 1 nothing is added and the network is its trunk.
At the site ``after_attention`` a component has only the position-wise parts of these blocks to
itself (see ``late``).

Shape legend: B sequences, M components, R rows = (sequence, component) pairs, L positions,
D width, C conditioning, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lkf_plugin.backbone.dropout import Keep, PairDraw, draw_keep
from lkf_plugin.backbone.late import (
    behind_attention,
    run_late,
    run_late_at,
    share_attention,
)
from lkf_plugin.backbone.stack import AdaLNBlock, Places
from lkf_plugin.backbone.trunk import BranchState, Trunk, TrunkState
from lkf_plugin.errors import UserError
from lkf_plugin.latents.structure import Structure
from lkf_plugin.subs import subs_log_probs

BLOCK, AFTER_ATTENTION = "block", "after_attention"
SITES = (BLOCK, AFTER_ATTENTION)
SHARED_BLOCKS, LAST_ATTENTION = "shared_blocks", "last_attention"
ROUTER_READS = (SHARED_BLOCKS, LAST_ATTENTION)


class LatentKernelBackbone(nn.Module):
    """Component denoisers P^k and the law of the latents over a trunk.

    Args:
        trunk: ``matched`` or ``native``.
        structure: law of the latents; its ``components`` are M, at 1 MDLM.
        latent_blocks: L_k, how many of the last blocks see the latent.
        mask_index: id of the mask.
        latent_emb_std: spread of the latent embedding. 1 by default; 0.02 is known to silence
            the mixture for good.
        latent_film_std: spread of the latent blocks' modulation weights. Small but not zero, so
            that the components differ from the first step.
        latent_site: whether the latent enters in whole blocks or behind their attention.
        router_reads: what the latents' potentials are read from: the stream before the latent
            blocks, or at the site ``after_attention`` the one without a latent behind the last
            attention, which knows as much of the text as a component does.
    """

    def __init__(
        self,
        trunk: Trunk,
        hidden_size: int,
        cond_dim: int,
        structure: Structure[Any],
        latent_blocks: int,
        mask_index: int,
        latent_emb_std: float = 1.0,
        latent_film_std: float = 0.02,
        latent_site: str = BLOCK,
        router_reads: str = SHARED_BLOCKS,
    ) -> None:
        super().__init__()
        depth = len(trunk.blocks)
        if not 1 <= latent_blocks <= depth:
            raise UserError(
                f"model.latent_blocks={latent_blocks} must lie between 1 and "
                f"model.n_blocks={depth}."
            )
        self.trunk = trunk
        self.structure = structure
        self.num_components = num_components = structure.components
        self.mask_index = mask_index
        self.first_latent = depth - latent_blocks
        if latent_site not in SITES:
            raise UserError(f"model.latent_site={latent_site} must be one of {', '.join(SITES)}.")
        # whether positions of a row do not mix where components differ; one component is the trunk
        self.late = latent_site == AFTER_ATTENTION and num_components > 1
        if router_reads not in ROUTER_READS:
            known = ", ".join(ROUTER_READS)
            raise UserError(f"model.router_reads={router_reads} must be one of {known}.")
        if router_reads == LAST_ATTENTION and latent_site != AFTER_ATTENTION:
            raise UserError(
                f"model.router_reads={LAST_ATTENTION} needs model.latent_site={AFTER_ATTENTION}: "
                "elsewhere each component has an attention of its own."
            )
        self.reads_last_attention = router_reads == LAST_ATTENTION and self.late
        # Extra parameters draw from a generator of their own: with the same seed the trunk, and
        # every random number drawn after it, stay those of MDLM.
        with torch.random.fork_rng(devices=[]):
            self.router = structure.network(hidden_size)
            self.latent_emb = nn.Embedding(num_components, cond_dim)
            nn.init.normal_(self.latent_emb.weight, std=latent_emb_std)
            if num_components > 1:
                for film in trunk.modulations()[self.first_latent :]:
                    nn.init.normal_(film.weight, std=latent_film_std)
        if num_components == 1:
            # log w = 0 whatever they hold, so their gradient is zero: freezing them says so to
            # the optimizer, to gradient clipping and to DDP.
            self.router.requires_grad_(False)
            self.latent_emb.requires_grad_(False)

    # --- the three stages ----------------------------------------------------------------------

    def encode(self, x_BL: Tensor, sigma_B: Tensor, s_B: Tensor | None = None) -> TrunkState:
        """Runs the shared blocks, and what the components share of the others.

        Args:
            x_BL: token ids.
            sigma_B: noise level of ``x_BL`` (zeros without time conditioning).
            s_B: target time in the paper's clock; None is the clean end, s = 1.
        """
        state = self._before_latent(x_BL, sigma_B, s_B)
        if not self.late:
            return state
        cos_sin = self.trunk.rotary_emb(x_BL.shape[1])
        again = self.trunk.activation_checkpointing
        late, h_BLD = share_attention(self._latent, state.h_BLD, state.act_BC, cos_sin, again)
        if not self.reads_last_attention:
            return state._replace(late=late)
        read_BLD = behind_attention(self._latent[-1], late[-1], h_BLD, state.act_BC)
        return state._replace(late=late, routed_BLD=read_BLD)

    def shared(self, x_BL: Tensor, sigma_B: Tensor, s_B: Tensor | None = None) -> TrunkState:
        """Enough for ``route``. Arguments as in ``encode``."""
        if self.reads_last_attention:
            return self.encode(x_BL, sigma_B, s_B)
        return self._before_latent(x_BL, sigma_B, s_B)

    def _before_latent(self, x_BL: Tensor, sigma_B: Tensor, s_B: Tensor | None) -> TrunkState:
        state = self.trunk.embed(x_BL, sigma_B, s_B)
        h_BLD = self.trunk.run_blocks(state.h_BLD, state.act_BC, 0, self.first_latent)
        return state._replace(h_BLD=h_BLD)

    def route(self, state: TrunkState) -> Any:
        """Potentials of the structure, float32 or better; ``sequence`` has log w [B, M]."""
        return self.router(state.h_BLD if state.routed_BLD is None else state.routed_BLD)

    def branch(
        self,
        state: TrunkState,
        row_R: Tensor | None = None,
        component_R: Tensor | None = None,
    ) -> BranchState:
        """Runs the latent blocks for pairs (row, component).

        Args:
            state: from ``encode``.
            row_R, component_R: pairs in any order, any number; both None means every pair, with
                row b * M + k for sequence b and component k.
        """
        if self.late:
            row_R, component_R = self._every_pair(state, row_R, component_R)
            act_RC = self._conditioning(state, row_R, component_R)
            here = state.of_rows(row_R)
            again = self.trunk.activation_checkpointing
            h_RLD = run_late(self._latent, here.late, here.h_BLD, act_RC, again)
            return BranchState(h_RLD, act_RC)
        h_RLD, act_RC = self._pairs(state, row_R, component_R)
        return BranchState(
            self.trunk.run_blocks(h_RLD, act_RC, self.first_latent, len(self.trunk.blocks)), act_RC
        )

    def branch_hidden(
        self,
        state: TrunkState,
        at: Places,
        row_R: Tensor | None = None,
        component_R: Tensor | None = None,
        draw: PairDraw | None = None,
        components: range | None = None,
    ) -> Tensor:
        """Input of the head at gathered (branch row, position) pairs, [N, D].

        As ``branch`` and then gathered, but what lies behind the last block's attention (at the
        site ``after_attention``: behind the shared blocks) is computed only at those places.

        Args:
            at: branch rows and positions.
            draw: ties dropout to the pairs (two-phase training); the masks of
                ``after_attention`` are the state's.
            components: range that holds every component of the pairs; None is all M.
            others: as in ``branch``.
        """
        if self.late:
            row_R, component_R = self._every_pair(state, row_R, component_R)
            act_RC = self._conditioning(state, row_R, component_R)
            source_N = row_R[at.row_N] * state.h_BLD.shape[1] + at.position_N
            again = self.trunk.activation_checkpointing
            h_ND = run_late_at(
                self._latent, state.late, state.h_BLD, act_RC, at.row_N, source_N, again
            )
            return self.trunk.output_hidden(h_ND, act_RC, at.row_N)
        h_RLD, act_RC = self._pairs(state, row_R, component_R)
        keep_of = self._keep_of(draw, row_R, component_R, components)
        last = len(self.trunk.blocks)
        h_ND = self.trunk.run_blocks(h_RLD, act_RC, self.first_latent, last, keep_of, at)
        return self.trunk.output_hidden(h_ND, act_RC, at.row_N)

    def _pairs(
        self, state: TrunkState, row_R: Tensor | None, component_R: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """(residual stream, activated conditioning) of pairs before the latent blocks."""
        h, act_RC = state.h_BLD, state.act_BC
        if self.num_components == 1:
            return (h, act_RC) if row_R is None else (h[row_R], act_RC[row_R])
        row_R, component_R = self._every_pair(state, row_R, component_R)
        return h[row_R], self._conditioning(state, row_R, component_R)

    def _every_pair(
        self, state: TrunkState, row_R: Tensor | None, component_R: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The pairs as given; without any, all of them."""
        if row_R is not None and component_R is not None:
            return row_R, component_R
        batch, device = state.h_BLD.shape[0], state.h_BLD.device
        row_R = torch.arange(batch, device=device).repeat_interleave(self.num_components)
        return row_R, torch.arange(self.num_components, device=device).repeat(batch)

    def _conditioning(self, state: TrunkState, row_R: Tensor, component_R: Tensor) -> Tensor:
        """Activated conditioning of pairs, the latent's embedding added, act_RC."""
        return F.silu(state.cond_BC[row_R] + self.latent_emb(component_R))

    @property
    def _latent(self) -> nn.ModuleList:
        """The blocks that see the latent."""
        return self.trunk.blocks[self.first_latent :]

    def _keep_of(
        self,
        draw: PairDraw | None,
        row_R: Tensor | None,
        component_R: Tensor | None,
        components: range | None,
    ) -> Callable[[int, Tensor], Keep | None]:
        """Dropout masks of the latent blocks; without ``draw`` from torch's generator.

        Masks are bytes in the graph, where torch's own dropout holds floats: with M components
        that is a tenth of the branch's memory.
        """
        every = range(self.num_components) if components is None else components

        def keep_of(i: int, h_RLD: Tensor) -> Keep | None:
            block = self.trunk.blocks[self.first_latent + i]
            assert isinstance(block, AdaLNBlock)
            if not block.training or block.dropout == 0:
                return None
            if draw is None:
                return draw_keep(h_RLD, block.dropout)
            assert row_R is not None and component_R is not None
            return draw.keep(i, h_RLD, block.dropout, row_R, component_R, every)

        return keep_of

    def logits(self, branch: BranchState) -> Tensor:
        """Logits at every position of every branch row, [R, L, V]."""
        return self.trunk.output_logits(branch.h_RLD, branch.act_RC)

    @property
    def head_weight(self) -> Tensor:
        """[V, D]."""
        return self.trunk.head_weight

    @property
    def head_bias(self) -> Tensor | None:
        """[V], or None for a tied head."""
        return self.trunk.head_bias

    # --- MDLM's contract -----------------------------------------------------------------------

    def forward(self, x_BL: Tensor, sigma_B: Tensor) -> Tensor:
        """What MDLM's code calls.

        At M = 1 the logits of the trunk. At M > 1 the marginal denoiser's log-probabilities
        log sum_k pi(z_i = k) P^k (paper, Prop. melbo), [B, L, V], which SUBS leaves as they are.
        The sum runs over one component at a time, so no [B, M, L, V] tensor exists.
        """
        state = self.encode(x_BL, sigma_B)
        if self.num_components == 1:
            return self.logits(self.branch(state))
        logpi_BML = self.structure.position_weights(self.route(state), x_BL.shape[1])
        rows = torch.arange(x_BL.shape[0], device=x_BL.device)
        total: Tensor | None = None
        for k in range(self.num_components):
            branch = self.branch(state, rows, torch.full_like(rows, k))
            logp_BLV = subs_log_probs(self.logits(branch), x_BL, self.mask_index)
            joint = logpi_BML[:, k, :, None] + logp_BLV
            total = joint if total is None else torch.logaddexp(total, joint)
        assert total is not None
        return total

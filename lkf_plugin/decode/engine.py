"""The rollout engine: any number of frozen-component chains as rows of one batch.

Which positions are revealed in a step does not depend on the logits, so that is drawn first; the
network is asked only for rows that reveal something, and the head only for the positions revealed.
Each row has its own component, noise stream and alive flag. A row's path depends on nothing but
its start, component and seed. Blocks with latents of their own draw them under the row's component
at its start, and hold them; or all latents are drawn anew in every step.

No state of a row is ever evaluated twice: a row is asked about only when it reveals something,
and then it has changed. What rows have in common is their start, which is run once for all rows
that still stand there.

Shape legend: R rows, A rows that reveal something in a step, G groups, L positions, N positions
revealed in a step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from lkf_plugin.corruption import reveal_probabilities, sampling_times
from lkf_plugin.decode.network import DecodeNetwork
from lkf_plugin.decode.noise import Stream, uniforms
from lkf_plugin.decode.token_draw import draw_token, take_likeliest
from lkf_plugin.latents.structure import with_sequence_latent


@dataclass
class Rollouts:
    """State of all rows; tensors are replaced, never shared with the caller.

    Attributes:
        x_RL: tokens, ``mask_index`` where still masked.
        component_R: frozen component of each row; with latents per block, its sequence latent (to
            reassign it between steps, see ``assign``).
        seed_R: noise seed of each row.
        alive_R: rows still being run; others keep their tokens.
        evidence_R: float64 sum of log P^k of the tokens that the row revealed, nats.
        calls_R: network evaluations spent on each row, counted as they happen.
        start_R: number of each row's start state, the same for equal ones.
        fresh_R: rows that still stand at their start.
        step: next step.
        block_RG: component of each group where blocks have latents; None: not drawn yet, or all
            groups have the row's.
    """

    x_RL: Tensor
    component_R: Tensor
    seed_R: Tensor
    alive_R: Tensor
    evidence_R: Tensor
    calls_R: Tensor
    start_R: Tensor
    fresh_R: Tensor
    step: int = 0
    block_RG: Tensor | None = None

    @staticmethod
    def start(x_RL: Tensor, component_R: Tensor, seed_R: Tensor) -> Rollouts:
        """Fresh rows at their start state."""
        rows, device = x_RL.shape[0], x_RL.device
        return Rollouts(
            x_RL.clone(),
            component_R.clone(),
            seed_R.clone(),
            torch.ones(rows, dtype=torch.bool, device=device),
            torch.zeros(rows, dtype=torch.float64, device=device),
            torch.zeros(rows, dtype=torch.int64, device=device),
            torch.unique(x_RL, dim=0, return_inverse=True)[1],
            torch.ones(rows, dtype=torch.bool, device=device),
        )

    def assign(self, component_R: Tensor) -> None:
        """Other components from here on; latents of blocks are drawn again under them."""
        self.component_R, self.block_RG = component_R, None

    def alike(self, active_R: Tensor) -> Tensor | None:
        """Numbers that are equal where active rows hold equal tokens; None: no two are known to."""
        fresh_A = self.fresh_R[active_R]
        if not fresh_A.any():
            return None
        own_A = self.start_R.numel() + active_R
        return torch.where(fresh_A, self.start_R[active_R], own_A)


@dataclass
class RolloutEngine:
    """Ancestral flow-map steps of frozen components.

    Args:
        network: the model.
        num_steps: J.
        eps: MDLM's end of the grid; 0 is the paper's grid, which leaves no residual mask.
        temperature: of the token draw; 1 is the model's law.
    """

    network: DecodeNetwork
    num_steps: int
    eps: float = 1e-5
    temperature: float = 1.0
    tau: list[float] = field(init=False)
    reveal: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self.tau = sampling_times(self.num_steps, self.eps)
        self.reveal = reveal_probabilities(self.num_steps, self.eps)

    @torch.no_grad()
    def run_step(self, rollouts: Rollouts, redraw: bool = False) -> None:
        """One step: each mask of an alive row is revealed with the grid's probability.

        Args:
            rollouts: rows, changed in place.
            redraw: all latents are drawn anew by the router at the states of this step.
        """
        j, x_RL = rollouts.step, rollouts.x_RL
        u_RL = uniforms(rollouts.seed_R, j, x_RL.shape[1], Stream.REVEAL)
        masked_RL = (x_RL == self.network.mask_index) & rollouts.alive_R[:, None]
        self._reveal(rollouts, masked_RL & (u_RL < self.reveal[j]), self.tau[j], False, redraw)
        rollouts.step = j + 1

    @torch.no_grad()
    def fill_residual(self, rollouts: Rollouts, redraw: bool = False) -> None:
        """Masks that outlived the last step take their component's most likely token."""
        masked_RL = (rollouts.x_RL == self.network.mask_index) & rollouts.alive_R[:, None]
        self._reveal(rollouts, masked_RL, self.tau[-1], True, redraw)

    def finish(self, rollouts: Rollouts, redraw: bool = False) -> None:
        """All remaining steps and the residual fill."""
        while rollouts.step < self.num_steps:
            self.run_step(rollouts, redraw)
        self.fill_residual(rollouts, redraw)

    def _draw_blocks(self, rollouts: Rollouts, tau: float) -> None:
        """Latents of all blocks given each row's component, by its own noise."""
        potentials = self.network.potentials(rollouts.x_RL, tau)
        given = with_sequence_latent(potentials, rollouts.component_R)
        u_RU = self._latent_uniforms(rollouts)
        rollouts.block_RG = self.network.structure.draw(given, u_RU)

    def _latent_uniforms(self, rollouts: Rollouts) -> Tensor:
        """Uniforms of this step's latents: one per sequence, then one per group, [R, 1 + G]."""
        groups = self.network.structure.blocks.count(rollouts.x_RL.shape[1])
        return uniforms(rollouts.seed_R, rollouts.step, 1 + groups, Stream.COMPONENT)

    def _reveal(
        self, rollouts: Rollouts, reveal_RL: Tensor, tau: float, greedy: bool, redraw: bool
    ) -> None:
        structure = self.network.structure
        if structure.has_blocks and rollouts.block_RG is None and not redraw:
            self._draw_blocks(rollouts, tau)
        active_R = reveal_RL.any(-1).nonzero().squeeze(-1)
        if active_R.numel() == 0:
            return
        rollouts.calls_R[active_R] += 1
        row_N, position_N = reveal_RL[active_R].nonzero(as_tuple=True)

        def drawn(potentials: Any) -> Tensor:
            component_AG = structure.draw(potentials, self._latent_uniforms(rollouts)[active_R])
            rollouts.component_R[active_R] = component_AG[:, 0] // structure.block_components
            return component_AG

        component_RG = rollouts.block_RG
        if component_RG is None:
            component_RG = rollouts.component_R[:, None]
        hidden_ND = self.network.hidden(
            rollouts.x_RL[active_R],
            component_RG[active_R],
            tau,
            row_N,
            position_N,
            rollouts.alike(active_R),
            drawn if redraw else None,
        )
        rollouts.fresh_R[active_R] = False
        row_N = active_R[row_N]
        u_RL = uniforms(rollouts.seed_R, rollouts.step, reveal_RL.shape[1], Stream.TOKEN)
        u_N = u_RL[row_N, position_N]
        tokens, evidence = [], []
        for start in range(0, row_N.numel(), self.network.head_rows):
            rows = slice(start, start + self.network.head_rows)
            tiles = self.network.logit_tiles(hidden_ND[rows])
            token_N, logp_N = (
                take_likeliest(tiles) if greedy else draw_token(tiles, u_N[rows], self.temperature)
            )
            tokens.append(token_N)
            evidence.append(logp_N)
        rollouts.x_RL[row_N, position_N] = torch.cat(tokens)
        gained_RL = torch.zeros(reveal_RL.shape, dtype=torch.float64, device=row_N.device)
        gained_RL[row_N, position_N] = torch.cat(evidence)
        rollouts.evidence_R += gained_RL.sum(-1)

"""Samplers of V = 3, L = 4 whose every step law is in a table, and all their strings."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lkf_plugin.information.product_mixture import all_strings
from lkf_plugin.latents.structure import Structure
from lkf_plugin.likelihood.step_model import StepScores
from tests.latents.enumeration import L, V, random_components, random_potentials

MASK = V
STATES = (V + 1) ** L
PLACE = (V + 1) ** torch.arange(L)


class TableModel:
    """A law of its own at each of the 256 states; the network call is a look-up."""

    mask_index = MASK

    def __init__(self, structure: Structure[Any], seed: int = 0) -> None:
        self.structure = structure
        self.potentials = random_potentials(structure, STATES, seed)
        self.logp_SMLV = random_components(structure, STATES, seed + 1)
        self.calls = 0

    def _number(self, x_RL: Tensor) -> Tensor:
        self.calls += len(x_RL)
        return (x_RL * PLACE).sum(-1)

    def score(self, x_RL: Tensor, target_RL: Tensor, counted_RL: Tensor, tau: float) -> StepScores:
        assert (x_RL[counted_RL] == MASK).all(), "only masks are revealed"
        state_R = self._number(x_RL)
        logp_RMLV = self.logp_SMLV[state_R]
        index_RMLV = target_RL[:, None, :, None].expand(*logp_RMLV.shape[:-1], 1)
        logp_RML = logp_RMLV.gather(-1, index_RMLV).squeeze(-1)
        return StepScores(
            self.potentials._make(part[state_R] for part in self.potentials),
            torch.where(counted_RL[:, None], logp_RML, 0.0),
        )

    def law(
        self, x_RL: Tensor, tau: float, component_R: Tensor | None = None
    ) -> tuple[Any, Tensor]:
        state_R = self._number(x_RL)
        logp_RMLV = self.logp_SMLV[state_R]
        if component_R is not None:
            logp_RMLV = logp_RMLV[torch.arange(len(x_RL)), component_R][:, None]
        return self.potentials._make(part[state_R] for part in self.potentials), logp_RMLV


class SteadyModel(TableModel):
    """Components that do not look at the state; the latents are told by what is visible.

    Its redrawn steps follow the chain rule of one fixed law of text, so that their order is
    indifferent and every bound is the likelihood itself.
    """

    def __init__(self, structure: Structure[Any], seed: int = 0) -> None:
        super().__init__(structure, seed)
        self.logp_SMLV = self.logp_SMLV[:1].expand(STATES, -1, -1, -1)
        first = self.potentials._make(
            part[:1].expand(STATES, *part.shape[1:]) for part in self.potentials
        )
        state_SL = all_strings(L, V + 1)
        order = (state_SL * PLACE).sum(-1).argsort()
        state_SL = state_SL[order]
        visible_SL = state_SL != MASK
        token_SL = torch.where(visible_SL, state_SL, 0)
        index_SMLV = token_SL[:, None, :, None].expand(*self.logp_SMLV.shape[:-1], 1)
        logp_SML = self.logp_SMLV.gather(-1, index_SMLV).squeeze(-1)
        ell_SGM = structure.blocks.sums(torch.where(visible_SL[:, None], logp_SML, 0.0))
        self.potentials = structure.condition(first, ell_SGM)


def all_patterns(num_steps: int) -> Tensor:
    """Step of each position, every one of the J^L patterns (equally likely on the paper's grid)."""
    return all_strings(L, num_steps)

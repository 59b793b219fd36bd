"""Candidates of each sample, run side by side as rows of one engine.

Shape legend: G samples, C candidates per sample, R rows = the candidates that exist, L positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lkf_plugin.decode.engine import Rollouts
from lkf_plugin.decode.policy import Decoded, DecodeRequest
from lkf_plugin.decode.scores import mixture_nelbo


@dataclass(frozen=True)
class Pool:
    """Rows of one engine, grouped by the sample that they are candidates for.

    Attributes:
        request: samples to be made.
        rollouts: state of the rows.
        exists_GC: bool; which candidates there are, at least one per sample.
        sample_R, candidate_R: place of each row.
    """

    request: DecodeRequest
    rollouts: Rollouts
    exists_GC: Tensor
    sample_R: Tensor
    candidate_R: Tensor

    @staticmethod
    def start(
        request: DecodeRequest, component_GC: Tensor, exists_GC: Tensor, shared_noise: bool
    ) -> Pool:
        """Candidates at their start states.

        Args:
            request: samples to be made.
            component_GC: frozen component of each candidate.
            exists_GC: which of them there are.
            shared_noise: one noise stream for all candidates of a sample; else candidate c has
                stream c, whatever other candidates there are.
        """
        sample_R, candidate_R = exists_GC.nonzero(as_tuple=True)
        chain_R = torch.zeros_like(candidate_R) if shared_noise else candidate_R
        rollouts = Rollouts.start(
            request.x_GL[sample_R],
            component_GC[sample_R, candidate_R],
            request.chain_seeds(sample_R, chain_R),
        )
        return Pool(request, rollouts, exists_GC, sample_R, candidate_R)

    @property
    def rows_a_sample(self) -> float:
        """Candidates a sample, on average."""
        return self.sample_R.numel() / self.exists_GC.shape[0]

    @property
    def calls_a_sample(self) -> float:
        """Evaluations that the engine has run, per sample on average."""
        return self.rollouts.calls_R.sum().item() / self.exists_GC.shape[0]

    def spread(self, value_R: Tensor, missing: float = torch.inf) -> Tensor:
        """Values of the rows as [G, C], ``missing`` where there is no candidate."""
        value_GC = torch.full(
            self.exists_GC.shape, missing, dtype=value_R.dtype, device=value_R.device
        )
        value_GC[self.sample_R, self.candidate_R] = value_R
        return value_GC

    def rows_of(self, candidate_G: Tensor) -> Tensor:
        """Row of one candidate of each sample, [G]."""
        rows = torch.arange(self.sample_R.numel(), device=candidate_G.device)
        row_GC = self.spread(rows, missing=-1)
        return row_GC.gather(-1, candidate_G[:, None]).squeeze(-1)

    def keep(self, keep_GC: Tensor) -> None:
        """Stops the rows of all other candidates."""
        self.rollouts.alive_R &= keep_GC[self.sample_R, self.candidate_R]

    def run_to(self, step: int) -> None:
        """Steps of the alive rows up to ``step``; no residual fill."""
        while self.rollouts.step < step:
            self.request.engine.run_step(self.rollouts)

    def finish(self) -> None:
        """The remaining steps and the residual fill."""
        self.request.engine.finish(self.rollouts)

    def cost(self) -> Tensor:
        """Minus the evidence so far, lower is better; inf where there is no alive row, [G, C]."""
        return self.spread(self.rollouts.evidence_R.neg().where(self.rollouts.alive_R, torch.inf))

    def nelbo(self, draws: int) -> Tensor:
        """Mixture NELBO of finished candidates under draws shared by a sample's, [G, C]."""
        network = self.request.engine.network
        free_RL = self.request.x_GL[self.sample_R] == network.mask_index
        seed_R = self.request.seed_G[self.sample_R]
        return self.spread(mixture_nelbo(network, self.rollouts.x_RL, free_RL, seed_R, draws))

    def tokens(self) -> Tensor:
        """Every candidate, masks where there is none, [G, C, L]."""
        x_GCL = torch.full(
            (*self.exists_GC.shape, self.rollouts.x_RL.shape[1]),
            self.request.engine.network.mask_index,
            device=self.rollouts.x_RL.device,
        )
        x_GCL[self.sample_R, self.candidate_R] = self.rollouts.x_RL
        return x_GCL

    def deliver(
        self, candidate_G: Tensor, score_GC: Tensor | None, steps_calls: float, scoring: float = 0.0
    ) -> Decoded:
        """One candidate of each sample; all must be finished if they are scored.

        Args:
            candidate_G: what was picked.
            score_GC: what it was picked by.
            steps_calls: by the method's own count.
            scoring: evaluations spent on scores, per sample.
        """
        row_G, blocks_RG = self.rows_of(candidate_G), self.rollouts.block_RG
        return Decoded(
            self.rollouts.x_RL[row_G],
            self.rollouts.component_R[row_G],
            score_GC,
            steps_calls,
            self.calls_a_sample + scoring,
            None if score_GC is None else self.tokens(),
            block_GB=None if blocks_RG is None else blocks_RG[row_G],
        )

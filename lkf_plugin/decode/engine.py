"""The rollout engine: any number of frozen-component chains as rows of one batch.

Which positions are revealed in a step does not depend on the logits, so that is drawn first; the
network is asked only for rows that reveal something, and the head only for the positions revealed.
Each row has its own component, noise stream and alive flag. A row's path depends on nothing but
its start, component and seed.

Shape legend: R rows, L positions, N positions revealed in a step.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from lkf_plugin.corruption import reveal_probabilities, sampling_times
from lkf_plugin.decode.network import DecodeNetwork
from lkf_plugin.decode.noise import Stream, uniforms


@dataclass
class Rollouts:
    """State of all rows; tensors are replaced, never shared with the caller.

    Attributes:
        x_RL: tokens, ``mask_index`` where still masked.
        component_R: frozen component of each row (may be reassigned between steps).
        seed_R: noise seed of each row.
        alive_R: rows still being run; others keep their tokens.
        evidence_R: float64 sum of log P^k of the tokens that the row revealed, nats.
        calls_R: network evaluations spent on each row, counted as they happen.
        step: next step.
    """

    x_RL: Tensor
    component_R: Tensor
    seed_R: Tensor
    alive_R: Tensor
    evidence_R: Tensor
    calls_R: Tensor
    step: int = 0

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
        )


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
    def run_step(self, rollouts: Rollouts) -> None:
        """One step: each mask of an alive row is revealed with the grid's probability."""
        j, x_RL = rollouts.step, rollouts.x_RL
        u_RL = uniforms(rollouts.seed_R, j, x_RL.shape[1], Stream.REVEAL)
        masked_RL = (x_RL == self.network.mask_index) & rollouts.alive_R[:, None]
        self._reveal(rollouts, masked_RL & (u_RL < self.reveal[j]), self.tau[j], greedy=False)
        rollouts.step = j + 1

    @torch.no_grad()
    def fill_residual(self, rollouts: Rollouts) -> None:
        """Masks that outlived the last step take their component's most likely token."""
        masked_RL = (rollouts.x_RL == self.network.mask_index) & rollouts.alive_R[:, None]
        self._reveal(rollouts, masked_RL, self.tau[-1], greedy=True)

    def finish(self, rollouts: Rollouts) -> None:
        """All remaining steps and the residual fill."""
        while rollouts.step < self.num_steps:
            self.run_step(rollouts)
        self.fill_residual(rollouts)

    def _reveal(self, rollouts: Rollouts, reveal_RL: Tensor, tau: float, greedy: bool) -> None:
        active_R = reveal_RL.any(-1).nonzero().squeeze(-1)
        if active_R.numel() == 0:
            return
        rollouts.calls_R[active_R] += 1
        row_N, position_N = reveal_RL[active_R].nonzero(as_tuple=True)
        hidden_ND = self.network.hidden(
            rollouts.x_RL[active_R], rollouts.component_R[active_R], tau, row_N, position_N
        )
        row_N = active_R[row_N]
        u_RL = uniforms(rollouts.seed_R, rollouts.step, reveal_RL.shape[1], Stream.TOKEN)
        u_N = u_RL[row_N, position_N]
        tokens, evidence = [], []
        for start in range(0, row_N.numel(), self.network.head_rows):
            rows = slice(start, start + self.network.head_rows)
            logp_NV = self.network.token_log_probs(hidden_ND[rows])
            token_N = logp_NV.argmax(-1) if greedy else self._draw(logp_NV, u_N[rows])
            tokens.append(token_N)
            evidence.append(logp_NV.gather(-1, token_N[:, None]).squeeze(-1))
        rollouts.x_RL[row_N, position_N] = torch.cat(tokens)
        gained_RL = torch.zeros(reveal_RL.shape, dtype=torch.float64, device=row_N.device)
        gained_RL[row_N, position_N] = torch.cat(evidence)
        rollouts.evidence_R += gained_RL.sum(-1)

    def _draw(self, logp_NV: Tensor, u_N: Tensor) -> Tensor:
        """Inverse-CDF draw in float64: one uniform a token, the law exact to 2^-53."""
        if self.temperature != 1.0:
            logp_NV = torch.log_softmax(logp_NV / self.temperature, dim=-1)
        cdf_NV = logp_NV.exp().cumsum(-1)
        threshold_N1 = (u_N * cdf_NV[:, -1])[:, None]
        return torch.searchsorted(cdf_NV, threshold_N1, right=True).squeeze(-1)

r"""``chain``: a Markov chain of latents over blocks (or positions), under a latent per sequence.

.. math:: \log\Psi = \log\sum_k w_k \sum_z a_{k z_1} e^{\ell_{1,k z_1}}
          \prod_{g>1} T_{kg}(z_{g-1}, z_g)\, e^{\ell_{g,k z_g}}

Component k m + j serves state j under sequence latent k. K = 1 is one chain; where every T is the
identity, a state is held for the whole sequence and the law is ``sequence``. Capacity:
log K + G log m nats per step.

T_g is read from the hidden states of block g. A chain over single positions that starts uniform
stays at its saddle for hundreds of steps: ``sticky`` adds a logit to staying.

Shape legend: B sequences, G groups, H = G - 1 transitions, K sequence latents, m states, M = K m,
N = B K chains, U uniforms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from typing_extensions import Self

from lkf_plugin import kernel
from lkf_plugin.latents.blocks import Blocks
from lkf_plugin.latents.draws import inverse_cdf
from lkf_plugin.latents.heads import BlockRouter, zero_linear
from lkf_plugin.latents.scan import conditioned, log_partition, path_posterior
from lkf_plugin.latents.structure import (
    STRUCTURES,
    Posterior,
    Structure,
    log_shares,
    share_out,
    without_sequence_latent,
)


class ChainPotentials(NamedTuple):
    """log w_k, log a_kj, and log T_kg(i, j) into groups 2 to G (rows i sum to one)."""

    logw_BK: Tensor
    loga_BKm: Tensor
    logT_BKHmm: Tensor


class ChainRouter(BlockRouter):
    """Potentials of the chain from hidden states."""

    def __init__(
        self,
        dim: int,
        blocks: Blocks,
        sequence_components: int,
        block_components: int,
        sticky: float,
    ) -> None:
        super().__init__(dim, blocks, sequence_components, block_components)
        self.states = block_components
        if block_components == 1:
            return
        self.start_out = zero_linear(dim, block_components)
        self.move_out = zero_linear(dim, block_components**2)
        with torch.no_grad():
            self.move_out.bias.copy_(sticky * torch.eye(block_components).flatten())

    def forward(self, h_BLD: Tensor) -> ChainPotentials:  # type: ignore[override]
        logw_BK, features_BGKD = self.read(h_BLD)
        if features_BGKD is None:
            sizes = logw_BK.shape
            still = (logw_BK.new_zeros(*sizes, 1), logw_BK.new_zeros(*sizes, 0, 1, 1))
            return ChainPotentials(logw_BK, *still)
        with torch.autocast(h_BLD.device.type, enabled=False):
            start_BKm = self.start_out(features_BGKD[:, 0])
            square = (self.states, self.states)
            move_BHKmm = self.move_out(features_BGKD[:, 1:]).unflatten(-1, square)
            return ChainPotentials(
                logw_BK,
                torch.log_softmax(start_BKm, dim=-1),
                torch.log_softmax(move_BHKmm, dim=-1).transpose(1, 2),
            )


@STRUCTURES.add("chain")
class Chain(Structure[ChainPotentials]):
    """A chain over blocks under one latent per sequence.

    Args:
        num_components: as in ``Structure``.
        block_components: likewise.
        block_length: likewise; 1 is a chain over positions.
        sticky: logit that a state has for staying, at the start of training.
    """

    def __init__(
        self,
        num_components: int = 1,
        block_components: int = 1,
        block_length: int | None = 1,
        sticky: float = 0.0,
    ) -> None:
        super().__init__(num_components, block_components, block_length)
        self.sticky = sticky

    @classmethod
    def from_settings(cls, model: Mapping[str, Any]) -> Self:
        sizes = (model["num_components"], model["block_components"], model["block_length"])
        return cls(*sizes, sticky=model.get("sticky", 0.0))

    def capacity(self, length: int) -> float:
        groups = self.blocks.count(length)
        return math.log(self.sequence_components) + groups * math.log(self.block_components)

    def network(self, hidden_size: int) -> nn.Module:
        return ChainRouter(
            hidden_size, self.blocks, self.sequence_components, self.block_components, self.sticky
        )

    def log_psi(self, p: ChainPotentials, ell_BGM: Tensor) -> Tensor:
        if p.loga_BKm.shape[-1] == 1:
            return kernel.log_mixture(p.logw_BK, ell_BGM.sum(1))
        loga_Nm, logT_NHmm, ell_NGm = _chains(p, ell_BGM)
        chain_BK = log_partition(loga_Nm, logT_NHmm, ell_NGm).view_as(p.logw_BK)
        return kernel.log_mixture(p.logw_BK, chain_BK)

    def condition(self, p: ChainPotentials, ell_BGM: Tensor) -> ChainPotentials:
        chain = conditioned(*_chains(p, ell_BGM))
        logr_BK = torch.log_softmax(p.logw_BK + chain.log_z_N.view_as(p.logw_BK), dim=-1)
        first_BKm = chain.first_Nm.unflatten(0, logr_BK.shape)
        return ChainPotentials(logr_BK, first_BKm, chain.moves_NHmm.unflatten(0, logr_BK.shape))

    def posterior(self, p: ChainPotentials, ell_BGM: Tensor) -> Posterior:
        with torch.no_grad():
            chain = path_posterior(*_chains(p, ell_BGM))
            sum_BK = chain.log_z_N.view_as(p.logw_BK)
            r_BK = kernel.responsibilities(p.logw_BK, sum_BK)
            gamma_BKGm = chain.gamma_NGm.unflatten(0, r_BK.shape) * r_BK[..., None, None]
            xi_BKHmm = chain.xi_NHmm.unflatten(0, r_BK.shape) * r_BK[..., None, None, None]
            return Posterior(
                kernel.log_mixture(p.logw_BK, sum_BK),
                gamma_BKGm.transpose(1, 2).flatten(2),
                ChainPotentials(r_BK, gamma_BKGm[:, :, 0], xi_BKHmm),
            )

    def counts(self, p: ChainPotentials) -> ChainPotentials:
        w_BK = p.logw_BK.exp()
        state_BKGm = w_BK[:, :, None, None] * _state_log_probs(p).exp()
        moves_BKHmm = state_BKGm[:, :, :-1, :, None] * p.logT_BKHmm.exp()
        return ChainPotentials(w_BK, state_BKGm[:, :, 0], moves_BKHmm)

    def marginals(self, p: ChainPotentials) -> Tensor:
        joint_BKGm = p.logw_BK[:, :, None, None] + _state_log_probs(p)
        return joint_BKGm.transpose(1, 2).flatten(2)

    def draw(self, p: ChainPotentials, u_BU: Tensor) -> Tensor:
        k_B = inverse_cdf(p.logw_BK.double().exp(), u_BU[:, 0])
        rows_B = torch.arange(len(k_B), device=k_B.device)
        states = [inverse_cdf(p.loga_BKm[rows_B, k_B].double().exp(), u_BU[:, 1])]
        T_HBmm = p.logT_BKHmm[rows_B, k_B].double().exp().transpose(0, 1)
        for g, T_Bmm in enumerate(T_HBmm.unbind(0)):
            states.append(inverse_cdf(T_Bmm[rows_B, states[-1]], u_BU[:, 2 + g]))
        return (k_B * self.block_components)[:, None] + torch.stack(states, 1)

    def without(self, p: ChainPotentials, component: int) -> ChainPotentials:
        k, j = divmod(component, self.block_components)
        if self.block_components == 1:
            return without_sequence_latent(p, k)
        starts, moves = list(p.loga_BKm.unbind(1)), list(p.logT_BKHmm.unbind(1))
        starts[k], moves[k] = share_out(starts[k], j), share_out(moves[k], j)
        return ChainPotentials(p.logw_BK, torch.stack(starts, 1), torch.stack(moves, 1))

    def uniform(self, batch: int, length: int) -> ChainPotentials:
        K, m, H = self.sequence_components, self.block_components, self.blocks.count(length) - 1
        sizes = ((K,), (K, m), (K, H, m, m))
        zeros = (torch.zeros(batch, *size, dtype=torch.float64) for size in sizes)
        return ChainPotentials(*(torch.log_softmax(part, dim=-1) for part in zeros))

    def maximize(self, counts: ChainPotentials, tied: bool) -> ChainPotentials:
        T_BKHmm = counts.logT_BKHmm
        if tied:
            T_BKHmm = T_BKHmm.sum(2, keepdim=True).expand_as(T_BKHmm)
        return ChainPotentials(
            log_shares(counts.logw_BK), log_shares(counts.loga_BKm), log_shares(T_BKHmm)
        )

    def expectation(self, p: ChainPotentials, ell_BGM: Tensor) -> Posterior:
        """Baum and Welch's scaled recursions on probabilities: matrix products in place of logs.

        They take positive transitions, which EM's smoothing gives, and lose what lies some 80 nats
        (float32) behind the best state of a group. With e_g = exp(ell_g - max ell_g):
        alpha_g = (alpha_{g-1} T_g) e_g / c_g, and backwards beta_{g-1} = T_g (e_g beta_g / c_g).
        """
        K, m = p.loga_BKm.shape[1:]
        ell_GKBm = ell_BGM.unflatten(-1, (K, m)).permute(1, 2, 0, 3)
        top_GKB1 = ell_GKBm.amax(-1, keepdim=True)
        e_GKBm = (ell_GKBm - top_GKB1).exp_()
        T_HKmm = p.logT_BKHmm[0].exp().transpose(0, 1).to(e_GKBm.dtype)
        joint_KBm = p.loga_BKm[0].exp()[:, None].to(e_GKBm.dtype) * e_GKBm[0]
        alphas: list[Tensor] = []
        norms: list[Tensor] = []
        for g in range(len(e_GKBm)):
            if g > 0:
                joint_KBm = (alphas[-1] @ T_HKmm[g - 1]).mul_(e_GKBm[g])
            norms.append(joint_KBm.sum(-1, keepdim=True))
            alphas.append(joint_KBm / norms[-1])
        sum_BK = (torch.stack(norms).log() + top_GKB1).sum(0).squeeze(-1).T
        r_BK = kernel.responsibilities(p.logw_BK, sum_BK)
        r_KB1 = r_BK.T[..., None]
        beta_KBm = torch.ones_like(alphas[-1])
        gammas, moves = [alphas[-1] * r_KB1], []
        for g in range(len(alphas) - 1, 0, -1):
            ahead_KBm = e_GKBm[g] * beta_KBm / norms[g]
            before_KBm = alphas[g - 1] * r_KB1
            moves.append(T_HKmm[g - 1] * (before_KBm.transpose(1, 2) @ ahead_KBm))
            beta_KBm = ahead_KBm @ T_HKmm[g - 1].transpose(1, 2)
            gammas.append(before_KBm * beta_KBm)
        gamma_GKBm = torch.stack(gammas[::-1])
        moves_KHmm = torch.stack(moves[::-1], 1) if moves else T_HKmm.transpose(0, 1)
        counts = ChainPotentials(
            r_BK.sum(0, keepdim=True), gamma_GKBm[0].sum(1)[None], moves_KHmm[None]
        )
        gamma_BGM = gamma_GKBm.permute(2, 0, 1, 3).flatten(2)
        return Posterior(kernel.log_mixture(p.logw_BK, sum_BK), gamma_BGM, counts)

    def entropy(self, p: ChainPotentials) -> Tensor:
        state_BKHm = _state_log_probs(p)[:, :, :-1].exp()
        moves_BK = (state_BKHm * kernel.entropy(p.logT_BKHmm)).sum((2, 3))
        path_BK = kernel.entropy(p.loga_BKm) + moves_BK
        return kernel.entropy(p.logw_BK) + (p.logw_BK.exp() * path_BK).sum(-1)

    def usage_entropy(self, p: ChainPotentials) -> Tensor:
        top = kernel.batch_router_entropy(p.logw_BK)
        if self.block_components == 1:
            return top
        both = kernel.batch_router_entropy(self.marginals(p).flatten(0, 1))
        return top + (p.logT_BKHmm.shape[2] + 1) * (both - top)


def _chains(p: ChainPotentials, ell_BGM: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """K chains of each sequence as rows: (loga_Nm, logT_NHmm, ell_NGm)."""
    sizes = p.loga_BKm.shape[1:]
    ell_BKGm = ell_BGM.unflatten(-1, sizes).transpose(1, 2)
    return p.loga_BKm.flatten(0, 1), p.logT_BKHmm.flatten(0, 1), ell_BKGm.flatten(0, 1)


def _state_log_probs(p: ChainPotentials) -> Tensor:
    """log P(z_g = j | k), [B, K, G, m]: products of probabilities in float64; none is -inf."""
    states = [p.loga_BKm.exp().double()[..., None, :]]
    for T_BKmm in p.logT_BKHmm.exp().double().unbind(2):
        states.append(states[-1] @ T_BKmm)
    state_BKGm = torch.cat(states, -2)
    log_BKGm = state_BKGm.clamp_min(torch.finfo(torch.float64).tiny).log()
    return torch.where(state_BKGm > 0, log_BKGm, -torch.inf).to(p.loga_BKm.dtype)

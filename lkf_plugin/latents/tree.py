r"""``tree``: a latent k per sequence and, given it, one latent j per block.

.. math:: \log\Psi = \log\sum_k w_k \prod_g \sum_j v_{gj|k}\, e^{\ell_{g,kj}}

Component k m + j serves sequence latent k and block latent j. With m = 1 it is ``sequence``, with
K = 1 blocks are independent. Capacity: log K + G log m nats per step.

With b_gk = logsumexp_j(log v_gj|k + ell_gkj), the posterior is r_k ~ w_k exp(sum_g b_gk) and
v'_gj|k = v_gj|k exp(ell_gkj - b_gk), so that gamma_gkj = r_k v'_gj|k.

Shape legend: B sequences, G groups, K sequence latents, m block latents, M = K m, U uniforms.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lkf_plugin import kernel
from lkf_plugin.latents.blocks import Blocks
from lkf_plugin.latents.draws import inverse_cdf
from lkf_plugin.latents.heads import BlockRouter, zero_linear
from lkf_plugin.latents.structure import (
    STRUCTURES,
    Posterior,
    Structure,
    log_shares,
    share_out,
    without_sequence_latent,
)


class TreePotentials(NamedTuple):
    """log w_k and log v_{gj|k}."""

    logw_BK: Tensor
    logv_BGKm: Tensor


class TreeRouter(BlockRouter):
    """Potentials of the tree from hidden states."""

    def __init__(
        self, dim: int, blocks: Blocks, sequence_components: int, block_components: int
    ) -> None:
        super().__init__(dim, blocks, sequence_components, block_components)
        if block_components > 1:
            self.block_out = zero_linear(dim, block_components)

    def forward(self, h_BLD: Tensor) -> TreePotentials:  # type: ignore[override]
        logw_BK, features_BGKD = self.read(h_BLD)
        if features_BGKD is None:
            return TreePotentials(logw_BK, logw_BK.new_zeros(len(logw_BK), 1, logw_BK.shape[1], 1))
        with torch.autocast(h_BLD.device.type, enabled=False):
            logv_BGKm = torch.log_softmax(self.block_out(features_BGKD), dim=-1)
        return TreePotentials(logw_BK, logv_BGKm)


@STRUCTURES.add("tree")
class Tree(Structure[TreePotentials]):
    """One latent per sequence over one per block."""

    def capacity(self, length: int) -> float:
        groups = self.blocks.count(length)
        return math.log(self.sequence_components) + groups * math.log(self.block_components)

    def network(self, hidden_size: int) -> nn.Module:
        return TreeRouter(hidden_size, self.blocks, self.sequence_components, self.block_components)

    def log_psi(self, p: TreePotentials, ell_BGM: Tensor) -> Tensor:
        joint_BGKm = p.logv_BGKm + _split(ell_BGM, p)
        return kernel.log_mixture(p.logw_BK, torch.logsumexp(joint_BGKm, dim=-1).sum(1))

    def condition(self, p: TreePotentials, ell_BGM: Tensor) -> TreePotentials:
        joint_BGKm = p.logv_BGKm + _split(ell_BGM, p)
        block_BGK = torch.logsumexp(joint_BGKm, dim=-1)
        logr_BK = torch.log_softmax(p.logw_BK + block_BGK.sum(1), dim=-1)
        return TreePotentials(logr_BK, torch.log_softmax(joint_BGKm, dim=-1))

    def posterior(self, p: TreePotentials, ell_BGM: Tensor) -> Posterior:
        with torch.no_grad():
            joint_BGKm = p.logv_BGKm + _split(ell_BGM, p)
            sum_BK = torch.logsumexp(joint_BGKm, dim=-1).sum(1)
            r_BK = kernel.responsibilities(p.logw_BK, sum_BK)
            gamma_BGKm = r_BK[:, None, :, None] * torch.softmax(joint_BGKm, dim=-1)
            log_psi_B = kernel.log_mixture(p.logw_BK, sum_BK)
            return Posterior(log_psi_B, gamma_BGKm.flatten(2), TreePotentials(r_BK, gamma_BGKm))

    def counts(self, p: TreePotentials) -> TreePotentials:
        w_BK = p.logw_BK.exp()
        return TreePotentials(w_BK, w_BK[:, None, :, None] * p.logv_BGKm.exp())

    def marginals(self, p: TreePotentials) -> Tensor:
        return (p.logw_BK[:, None, :, None] + p.logv_BGKm).flatten(2)

    def draw(self, p: TreePotentials, u_BU: Tensor) -> Tensor:
        k_B = inverse_cdf(p.logw_BK.double().exp(), u_BU[:, 0])
        m = self.block_components
        v_BGm = p.logv_BGKm[torch.arange(len(k_B), device=k_B.device), :, k_B].double().exp()
        j_BG = inverse_cdf(v_BGm.flatten(0, 1), u_BU[:, 1:].flatten()) if m > 1 else 0
        groups = p.logv_BGKm.shape[1]
        base_BG = (k_B * m)[:, None].expand(-1, groups)
        return base_BG + (j_BG.unflatten(0, (-1, groups)) if isinstance(j_BG, Tensor) else 0)

    def without(self, p: TreePotentials, component: int) -> TreePotentials:
        k, j = divmod(component, self.block_components)
        if self.block_components == 1:
            return without_sequence_latent(p, k)
        parts = list(p.logv_BGKm.unbind(2))
        parts[k] = share_out(parts[k], j)
        return p._replace(logv_BGKm=torch.stack(parts, 2))

    def uniform(self, batch: int, length: int) -> TreePotentials:
        K, m, G = self.sequence_components, self.block_components, self.blocks.count(length)
        zeros_BK = torch.zeros(batch, K, dtype=torch.float64)
        zeros_BGKm = torch.zeros(batch, G, K, m, dtype=torch.float64)
        return TreePotentials(torch.log_softmax(zeros_BK, -1), torch.log_softmax(zeros_BGKm, -1))

    def maximize(self, counts: TreePotentials, tied: bool) -> TreePotentials:
        v_BGKm = counts.logv_BGKm
        if tied:
            v_BGKm = v_BGKm.sum(1, keepdim=True).expand_as(v_BGKm)
        return TreePotentials(log_shares(counts.logw_BK), log_shares(v_BGKm))

    def entropy(self, p: TreePotentials) -> Tensor:
        blocks_BK = kernel.entropy(p.logv_BGKm).sum(1)
        return kernel.entropy(p.logw_BK) + (p.logw_BK.exp() * blocks_BK).sum(-1)

    def usage_entropy(self, p: TreePotentials) -> Tensor:
        top = kernel.batch_router_entropy(p.logw_BK)
        if self.block_components == 1:
            return top
        # H(k, j) - H(k) of the use that is averaged over batch and groups
        both = kernel.batch_router_entropy(self.marginals(p).flatten(0, 1))
        return top + p.logv_BGKm.shape[1] * (both - top)


def _split(ell_BGM: Tensor, p: TreePotentials) -> Tensor:
    """[B, G, K, m]."""
    return ell_BGM.unflatten(-1, p.logv_BGKm.shape[-2:])

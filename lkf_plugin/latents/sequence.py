"""``sequence``: one latent per sequence, LKF itself; MDLM at M = 1.

log Psi = logsumexp_k(log w_k + sum_g ell_gk), the kernel's own functions on one group. Capacity:
log M nats per step.

Shape legend: B sequences, G groups, K = M components, U uniforms.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lkf_plugin import kernel
from lkf_plugin.errors import UserError
from lkf_plugin.latents.draws import inverse_cdf
from lkf_plugin.latents.router import Router
from lkf_plugin.latents.structure import (
    STRUCTURES,
    Posterior,
    Structure,
    log_shares,
    without_sequence_latent,
)


class SequencePotentials(NamedTuple):
    """log w_k."""

    logw_BK: Tensor


class PooledRouter(Router):
    """The router, its weights as potentials."""

    def forward(self, h_BLD: Tensor) -> SequencePotentials:  # type: ignore[override]
        return SequencePotentials(super().forward(h_BLD))


@STRUCTURES.add("sequence")
class Sequence(Structure[SequencePotentials]):
    """One latent for all positions."""

    def __init__(
        self, num_components: int, block_components: int = 1, block_length: int | None = None
    ) -> None:
        if block_components != 1:
            raise UserError(
                f"model.block_components={block_components} needs latent=tree or latent=chain: "
                "latent=sequence has no latents per block."
            )
        super().__init__(num_components)

    def capacity(self, length: int) -> float:
        return math.log(self.components)

    def network(self, hidden_size: int) -> nn.Module:
        return PooledRouter(hidden_size, self.components)

    def log_psi(self, p: SequencePotentials, ell_BGM: Tensor) -> Tensor:
        return kernel.log_mixture(p.logw_BK, _whole(ell_BGM))

    def condition(self, p: SequencePotentials, ell_BGM: Tensor) -> SequencePotentials:
        return SequencePotentials(torch.log_softmax(p.logw_BK + _whole(ell_BGM), dim=-1))

    def posterior(self, p: SequencePotentials, ell_BGM: Tensor) -> Posterior:
        with torch.no_grad():
            gamma_BK = kernel.responsibilities(p.logw_BK, _whole(ell_BGM))
            gamma_BGK = gamma_BK[:, None].expand_as(ell_BGM)
            return Posterior(self.log_psi(p, ell_BGM), gamma_BGK, SequencePotentials(gamma_BK))

    def counts(self, p: SequencePotentials) -> SequencePotentials:
        return SequencePotentials(p.logw_BK.exp())

    def marginals(self, p: SequencePotentials) -> Tensor:
        return p.logw_BK[:, None]

    def draw(self, p: SequencePotentials, u_BU: Tensor) -> Tensor:
        return inverse_cdf(p.logw_BK.double().exp(), u_BU[:, 0])[:, None]

    def without(self, p: SequencePotentials, component: int) -> SequencePotentials:
        return without_sequence_latent(p, component)

    def uniform(self, batch: int, length: int) -> SequencePotentials:
        zeros_BK = torch.zeros(batch, self.components, dtype=torch.float64)
        return SequencePotentials(torch.log_softmax(zeros_BK, dim=-1))

    def maximize(self, counts: SequencePotentials, tied: bool) -> SequencePotentials:
        return SequencePotentials(log_shares(counts.logw_BK))

    def entropy(self, p: SequencePotentials) -> Tensor:
        return kernel.entropy(p.logw_BK)

    def usage_entropy(self, p: SequencePotentials) -> Tensor:
        return kernel.batch_router_entropy(p.logw_BK)


def _whole(ell_BGM: Tensor) -> Tensor:
    """Sum over the groups, the same bits where there is one."""
    return ell_BGM[:, 0] if ell_BGM.shape[1] == 1 else ell_BGM.sum(1)

"""Hand-made networks whose step laws are known: components of hidden agreement, no training."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lkf_plugin.backbone.stack import Places
from lkf_plugin.backbone.trunk import TrunkState
from lkf_plugin.corruption import LogLinearNoise
from lkf_plugin.decode.engine import RolloutEngine
from lkf_plugin.decode.network import DecodeNetwork
from lkf_plugin.decode.noise import mix
from lkf_plugin.decode.policy import DecodeRequest
from lkf_plugin.latents.sequence import Sequence, SequencePotentials


class AgreementTable:
    """At the all-mask state component k says value k with ``purity_M[k]``, else any other value.

    Once a token shows, every component repeats the most frequent visible value, a hundred times
    surer, and the router prefers that value's component. It stands in for a trained backbone of
    M = V components.
    """

    head_bias = None

    def __init__(self, purity_M: Tensor, logw_M: Tensor | None = None) -> None:
        self.purity_M = purity_M.double()
        self.values = self.num_components = purity_M.numel()
        self.mask_index = self.values
        uniform = torch.full_like(self.purity_M, 1 / self.values).log()
        self.logw_M = uniform if logw_M is None else torch.log_softmax(logw_M.double(), -1)
        self.structure = Sequence(self.values)
        self.head_weight = torch.eye(self.values + 1, dtype=torch.float64)

    def encode(self, x_BL: Tensor, sigma_B: Tensor, s_B: Any = None) -> TrunkState:
        return TrunkState(x_BL, sigma_B, sigma_B)

    shared = encode

    def _votes(self, x_BL: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(x_BL, self.values + 1)[..., :-1].sum(1)

    def route(self, state: TrunkState) -> SequencePotentials:
        votes_BM = self._votes(state.h_BLD)
        return SequencePotentials(torch.log_softmax(self.logw_M + 5.0 * votes_BM, dim=-1))

    def branch_hidden(
        self,
        state: TrunkState,
        at: Places,
        row_R: Tensor | None = None,
        component_R: Tensor | None = None,
    ) -> Tensor:
        """The component's log-probabilities themselves; the head is the identity."""
        x_BL = state.h_BLD
        if row_R is None or component_R is None:
            row_R = torch.arange(len(x_BL)).repeat_interleave(self.num_components)
            component_R = torch.arange(self.num_components).repeat(len(x_BL))
        votes_RV = self._votes(x_BL[row_R])
        seen_R = votes_RV.sum(-1) > 0
        said_R = torch.where(seen_R, votes_RV.argmax(-1), component_R)
        slip_R = (1 - self.purity_M[said_R]) * torch.where(seen_R, 0.01, 1.0)
        sure_R = 1 - slip_R
        logp_RV = ((1 - sure_R) / (self.values - 1)).log()[:, None].repeat(1, self.values)
        logp_RV.scatter_(-1, said_R[:, None], sure_R.log()[:, None])
        logp_RV = torch.nn.functional.pad(logp_RV, (0, 1), value=-1e9)
        return logp_RV[at.row_N]


def agreement_request(
    purity_M: Tensor, samples: int, steps: int, logw_M: Tensor | None = None, length: int = 8
) -> DecodeRequest:
    """Samples of hidden agreement."""
    table: Any = AgreementTable(purity_M, logw_M)
    network = DecodeNetwork(table, LogLinearNoise(), lambda sigma: sigma)
    start = torch.full((samples, length), table.mask_index)
    return DecodeRequest(RolloutEngine(network, steps), start, mix(3, torch.arange(samples)))

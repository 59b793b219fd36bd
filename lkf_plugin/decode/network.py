"""What decoding needs of a trained model, and the counting of its network calls.

Shape legend: R rows, L positions, N gathered (row, position) pairs, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lkf_plugin.backbone.latent import LatentKernelBackbone
from lkf_plugin.backbone.trunk import TrunkState
from lkf_plugin.subs import NEG_INFINITY


class DecodeNetwork:
    """A backbone with its noise schedule, asked row by row.

    Args:
        backbone: in eval mode.
        noise: tau -> (sigma, dsigma).
        process_sigma: the host's rule for what the network is told of sigma (zeros without time
            conditioning).
        head_rows: rows of float64 logits held at once.
    """

    def __init__(
        self,
        backbone: LatentKernelBackbone,
        noise: nn.Module,
        process_sigma: Callable[[Tensor], Tensor],
        head_rows: int = 512,
    ) -> None:
        self.backbone = backbone
        self.noise = noise
        self.process_sigma = process_sigma
        self.head_rows = head_rows

    @property
    def mask_index(self) -> int:
        return self.backbone.mask_index

    @property
    def num_components(self) -> int:
        return self.backbone.num_components

    def sigma_at(self, tau: float | Tensor, rows: int, device: torch.device) -> Tensor:
        """What the network is told at MDLM time ``tau``, shape [rows]."""
        tau_R = torch.as_tensor(tau, dtype=torch.float32, device=device).expand(rows)
        return self.process_sigma(self.noise(tau_R)[0])

    def encode(self, x_RL: Tensor, tau: float) -> TrunkState:
        """Trunk states of rows at time ``tau``; rows that are all alike are run once."""
        if x_RL.shape[0] > 1 and bool((x_RL == x_RL[:1]).all()):
            one = self.backbone.encode(x_RL[:1], self.sigma_at(tau, 1, x_RL.device))
            n = x_RL.shape[0]
            return TrunkState(*(x.expand(n, *x.shape[1:]) for x in one))
        return self.backbone.encode(x_RL, self.sigma_at(tau, x_RL.shape[0], x_RL.device))

    def prior(self, x_RL: Tensor, tau: float = 1.0) -> Tensor:
        """log w at a start state, float64 [R, M]."""
        return self.backbone.route(self.encode(x_RL, tau)).double()

    def hidden(
        self,
        x_RL: Tensor,
        component_R: Tensor,
        tau: float,
        row_N: Tensor,
        position_N: Tensor,
    ) -> Tensor:
        """Head inputs of (row, position) pairs, each row under its own component, [N, D]."""
        start_alike = x_RL.shape[0] > 1 and bool((x_RL == x_RL[:1]).all())
        if start_alike:
            # one branch row a component serves every row of a freshly started batch
            distinct, inverse_R = torch.unique(component_R, return_inverse=True)
            state = self.backbone.encode(x_RL[:1], self.sigma_at(tau, 1, x_RL.device))
            branch = self.backbone.branch(state, torch.zeros_like(distinct), distinct)
            return self.backbone.hidden_at(branch, inverse_R[row_N], position_N)
        state = self.backbone.encode(x_RL, self.sigma_at(tau, x_RL.shape[0], x_RL.device))
        rows = torch.arange(x_RL.shape[0], device=x_RL.device)
        branch = self.backbone.branch(state, rows, component_R)
        return self.backbone.hidden_at(branch, row_N, position_N)

    def token_log_probs(self, hidden_ND: Tensor) -> Tensor:
        """float64 SUBS log-probabilities of a few rows, [N, V]."""
        logits = F.linear(hidden_ND, self.backbone.head_weight, self.backbone.head_bias).double()
        logits[:, self.mask_index] += NEG_INFINITY
        return torch.log_softmax(logits, dim=-1)

"""What decoding needs of a trained model, and the counting of its network calls.

Shape legend: R rows, G groups, L positions, N gathered (row, position) pairs, D width,
V vocabulary, C columns of a tile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lkf_plugin.backbone.latent import LatentKernelBackbone
from lkf_plugin.backbone.stack import Places
from lkf_plugin.backbone.trunk import TrunkState
from lkf_plugin.decode.compiled import CompiledRows
from lkf_plugin.latents.pairs import DistinctPairs, distinct_pairs
from lkf_plugin.latents.structure import Structure, in_double
from lkf_plugin.subs import NEG_INFINITY
from lkf_plugin.token_head.tiled import column_tiles


class DecodeNetwork:
    """A backbone with its noise schedule, asked row by row.

    Args:
        backbone: in eval mode.
        noise: tau -> (sigma, dsigma).
        process_sigma: the host's rule for what the network is told of sigma (zeros without time
            conditioning).
        head_rows: rows of logits held at once, the only tensors of the vocabulary's width.
        compile_mode: of ``torch.compile`` for the rollouts' network calls; None runs them as is.
    """

    def __init__(
        self,
        backbone: LatentKernelBackbone,
        noise: nn.Module,
        process_sigma: Callable[[Tensor], Tensor],
        head_rows: int = 128,
        compile_mode: str | None = None,
    ) -> None:
        self.backbone = backbone
        self.noise = noise
        self.process_sigma = process_sigma
        self.head_rows = head_rows
        self.compiled = CompiledRows(backbone, compile_mode) if compile_mode else None

    @property
    def mask_index(self) -> int:
        return self.backbone.mask_index

    @property
    def num_components(self) -> int:
        """M, the branch passes of a row."""
        return self.backbone.num_components

    @property
    def structure(self) -> Structure[Any]:
        """Law of the latents."""
        return self.backbone.structure

    @property
    def sequence_components(self) -> int:
        """K, the values of the latent that a sequence has: what policies choose among."""
        return self.structure.sequence_components

    def sigma_at(self, tau: float | Tensor, rows: int, device: torch.device) -> Tensor:
        """What the network is told at MDLM time ``tau``, shape [rows]."""
        tau_R = torch.as_tensor(tau, dtype=torch.float32, device=device).expand(rows)
        return self.process_sigma(self.noise(tau_R)[0])

    def shared(self, x_RL: Tensor, tau: float) -> TrunkState:
        """What the router reads of rows at time ``tau``; equal rows are run once."""
        distinct_SL, state_R = torch.unique(x_RL, dim=0, return_inverse=True)
        if distinct_SL.shape[0] == x_RL.shape[0]:
            return self.backbone.shared(x_RL, self.sigma_at(tau, x_RL.shape[0], x_RL.device))
        sigma_S = self.sigma_at(tau, distinct_SL.shape[0], x_RL.device)
        return self.backbone.shared(distinct_SL, sigma_S).of_rows(state_R)

    def potentials(self, x_RL: Tensor, tau: float = 1.0) -> Any:
        """Law of the latents at some states, float64."""
        return in_double(self.backbone.route(self.shared(x_RL, tau)))

    def prior(self, x_RL: Tensor, tau: float = 1.0) -> Tensor:
        """log w of the sequence latent at a start state, float64 [R, K]."""
        prior_RK: Tensor = self.potentials(x_RL, tau)[0]
        return prior_RK

    def hidden(
        self,
        x_RL: Tensor,
        component_RG: Tensor,
        tau: float,
        row_N: Tensor,
        position_N: Tensor,
        alike_R: Tensor | None = None,
        draw: Callable[[Any], Tensor] | None = None,
    ) -> Tensor:
        """Head inputs of (row, position) pairs, each group under its own component, [N, D].

        A row passes the branch once for every component that its positions ask for.

        Args:
            x_RL, component_RG: rows and the component of each group, one group or all of them.
            tau: MDLM time.
            row_N, position_N: what is asked for.
            alike_R: rows with equal numbers hold equal tokens; the trunk runs once for them, and
                the latent branch once for those of one component. None: every row is its own.
            draw: potentials of the rows -> the components, where they are drawn at these states;
                ``component_RG`` is then not looked at.
        """
        rows, device = x_RL.shape[0], x_RL.device
        every_R = torch.arange(rows, device=device)
        state_of_R, one_S = (every_R, every_R) if alike_R is None else _distinct(alike_R)
        x_SL = x_RL if alike_R is None else x_RL[one_S]
        sigma_S = self.sigma_at(tau, one_S.numel(), device)
        state = self.backbone.encode(x_SL, sigma_S) if self.compiled is None else None
        if draw is not None:
            routed = self.potentials(x_SL, tau) if state is None else self.backbone.route(state)
            component_RG = draw(routed._make(part.double()[state_of_R] for part in routed))
        if component_RG.shape[1] == 1:
            component_R = component_RG[:, 0]
            pair_of_R, one_P = every_R, every_R
            if alike_R is not None:
                pair_of_R, one_P = _distinct(state_of_R * self.num_components + component_R)
            pairs = DistinctPairs(state_of_R[one_P], component_R[one_P], pair_of_R[row_N])
        else:
            group_L = self.structure.blocks.group_of(x_RL.shape[1], device)
            component_N = component_RG[row_N, group_L[position_N]]
            pairs = distinct_pairs(state_of_R[row_N], component_N, self.num_components)
        if state is None:
            assert self.compiled is not None
            return self.compiled.hidden(
                x_SL[pairs.row_R],
                sigma_S[pairs.row_R],
                pairs.component_R,
                pairs.pair_N,
                position_N,
            )
        at = Places(pairs.pair_N, position_N)
        return self.backbone.branch_hidden(state, at, pairs.row_R, pairs.component_R)

    def logit_tiles(self, hidden_ND: Tensor) -> Iterator[Tensor]:
        """Logits of a few rows, some columns at a time, the mask's 1e6 lower, each [N, C]."""
        weight_VD, bias_V = self.backbone.head_weight, self.backbone.head_bias
        for columns in column_tiles(weight_VD.shape[0], weight_VD.device):
            bias = None if bias_V is None else bias_V[columns]
            logits_NC = F.linear(hidden_ND, weight_VD[columns], bias)
            if columns.start <= self.mask_index < columns.stop:
                logits_NC[:, self.mask_index - columns.start] += NEG_INFINITY
            yield logits_NC


def _distinct(key_R: Tensor) -> tuple[Tensor, Tensor]:
    """(number of each row's key, some row that holds each key)."""
    keys, number_R = torch.unique(key_R, return_inverse=True)
    one = torch.empty_like(keys).scatter_(
        0, number_R, torch.arange(key_R.numel(), device=key_R.device)
    )
    return number_R, one

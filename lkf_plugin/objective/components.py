"""Token log-probabilities of every component, from the network to [B, M, L].

Shape legend: B sequences, M components, L positions, N gathered (row, position) pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from lkf_plugin.backbone.latent import LatentKernelBackbone
from lkf_plugin.backbone.stack import Places
from lkf_plugin.backbone.trunk import TrunkState
from lkf_plugin.subs import subs_log_probs
from lkf_plugin.token_head.logprob import token_logprob


@dataclass(frozen=True)
class HeadSettings:
    """How the token head is computed.

    Attributes:
        backend: ``mdlm`` builds every logit at every position in MDLM's operation order; the
            others (see ``token_head``) only the rows that count.
        chunk_rows: rows per chunk of the ``chunked`` backend (a CPU takes at most 256).
    """

    backend: str = "chunked"
    chunk_rows: int = 4096

    @staticmethod
    def resolve(backend: str, chunk_rows: int, is_mdlm: bool) -> HeadSettings:
        """``auto`` is MDLM's own order where the run is MDLM (M = 1), and ``chunked`` beyond."""
        if backend == "auto":
            backend = "mdlm" if is_mdlm else "chunked"
        return HeadSettings(backend, chunk_rows)


class ComponentScores(NamedTuple):
    """What every objective is a function of.

    Attributes:
        logw_BM: log router weights.
        logp_BML: log P_i^k(target_i); 0 where a position does not count.
    """

    logw_BM: Tensor
    logp_BML: Tensor


def counted_places(counted_BL: Tensor) -> Places:
    """Where ``counted_BL`` is true, sequence after sequence.

    Their number is data, so this waits for the device: once per step, since every other index list
    is made from this one.
    """
    row_N, position_N = counted_BL.nonzero(as_tuple=True)
    return Places(row_N, position_N)


def places_of_components(places: Places, num_components: int) -> Places:
    """The same positions in branch rows b * M + k, all k of a position side by side."""
    k_M = torch.arange(num_components, device=places.row_N.device)
    rows = (places.row_N[:, None] * num_components + k_M).flatten()
    return Places(rows, places.position_N.repeat_interleave(num_components))


def component_scores(
    backbone: LatentKernelBackbone,
    xt_BL: Tensor,
    target_BL: Tensor,
    counted_BL: Tensor,
    sigma_B: Tensor,
    head: HeadSettings,
    s_B: Tensor | None = None,
    mask_is_outcome: bool = False,
) -> ComponentScores:
    """Scores of all M components against one target.

    Args:
        xt_BL: noisy tokens.
        target_BL: tokens to be explained.
        counted_BL: bool; masked, non-padding positions.
        sigma_B: what the network is told of the noise.
        head: how the head is computed.
        s_B: target time in the paper's clock, or None for the clean end.
        mask_is_outcome: [MASK] keeps its own probability (two-time objective, learned form).
    """
    M = backbone.num_components
    state = backbone.encode(xt_BL, sigma_B, s_B)
    logw_BM = backbone.route(state)
    if head.backend == "mdlm":
        assert not mask_is_outcome, "MDLM's order is that of SUBS, where [MASK] is no outcome"
        logp_BML = _mdlm_logprobs(backbone, state, xt_BL, target_BL, counted_BL)
        return ComponentScores(logw_BM, logp_BML)
    places = counted_places(counted_BL)
    at = places_of_components(places, M)
    logp_N = token_logprob(
        backbone.branch_hidden(state, at),
        backbone.head_weight,
        backbone.head_bias,
        target_BL[places].repeat_interleave(M),
        None if mask_is_outcome else backbone.mask_index,
        head.backend,
        head.chunk_rows,
    )
    return ComponentScores(logw_BM, spread(logp_N, at, xt_BL.shape, M))


def spread(logp_N: Tensor, at: Places, shape: torch.Size, num_components: int) -> Tensor:
    """[B, M, L] with ``logp_N`` at its places (rows b * M + k) and 0 elsewhere."""
    batch, length = shape
    zeros = logp_N.new_zeros(batch * num_components, length)
    # every place occurs once, so this write is deterministic on any device
    return zeros.index_put(tuple(at), logp_N).unflatten(0, (batch, num_components))


def _mdlm_logprobs(
    backbone: LatentKernelBackbone,
    state: TrunkState,
    xt_BL: Tensor,
    target_BL: Tensor,
    counted_BL: Tensor,
) -> Tensor:
    """Every logit at every position, in MDLM's order of operations, [B, M, L]."""
    M = backbone.num_components
    xt_RL, target_RL, counted_RL = (
        x.repeat_interleave(M, 0) for x in (xt_BL, target_BL, counted_BL)
    )
    logits_RLV = backbone.logits(backbone.branch(state))
    logp_RLV = subs_log_probs(logits_RLV, xt_RL, backbone.mask_index)
    logp_RL = logp_RLV.gather(-1, target_RL[..., None]).squeeze(-1)
    return torch.where(counted_RL, logp_RL, 0.0).unflatten(0, (-1, M))

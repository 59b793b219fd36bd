"""Token log-probabilities of every component, from the network to [B, M, L].

Shape legend: B sequences, M components, L positions, N gathered (row, position) pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from lkf_plugin.backbone.latent import LatentKernelBackbone
from lkf_plugin.backbone.trunk import BranchState
from lkf_plugin.subs import subs_log_probs
from lkf_plugin.token_head import token_logprob


@dataclass(frozen=True)
class HeadSettings:
    """How the token head is computed.

    Attributes:
        backend: ``mdlm`` builds every logit at every position in MDLM's operation order; the
            others (see ``token_head``) only the rows that count.
        chunk_rows: rows a chunk of the ``chunked`` backend.
    """

    backend: str = "chunked"
    chunk_rows: int = 1024

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


def branch_token_logprobs(
    backbone: LatentKernelBackbone,
    branch: BranchState,
    xt_RL: Tensor,
    target_RL: Tensor,
    counted_RL: Tensor,
    head: HeadSettings,
    mask_index: int | None,
) -> Tensor:
    """log P_i(target_i) of branch rows, shape [R, L]; 0 where not counted."""
    if head.backend == "mdlm":
        assert mask_index is not None, "MDLM's order is that of SUBS, where [MASK] is no outcome"
        logp_RLV = subs_log_probs(backbone.logits(branch), xt_RL, mask_index)
        logp_RL = logp_RLV.gather(-1, target_RL[..., None]).squeeze(-1)
        return torch.where(counted_RL, logp_RL, 0.0)
    row_N, position_N = counted_RL.nonzero(as_tuple=True)
    logp_N = token_logprob(
        backbone.hidden_at(branch, row_N, position_N),
        backbone.head_weight,
        backbone.head_bias,
        target_RL[row_N, position_N],
        mask_index,
        head.backend,
        head.chunk_rows,
    )
    # every pair occurs once, so this write is deterministic on any device
    return logp_N.new_zeros(target_RL.shape).index_put((row_N, position_N), logp_N)


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
    logp_RL = branch_token_logprobs(
        backbone,
        backbone.branch(state),
        xt_BL.repeat_interleave(M, 0),
        target_BL.repeat_interleave(M, 0),
        counted_BL.repeat_interleave(M, 0),
        head,
        None if mask_is_outcome else backbone.mask_index,
    )
    return ComponentScores(logw_BM, logp_RL.unflatten(0, (-1, M)))

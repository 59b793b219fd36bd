"""SUBS: zero mask probability and carry-over of revealed tokens.

Source: MDLM, Diffusion._subs_parameterization.
"""

from __future__ import annotations

import torch
from torch import Tensor

NEG_INFINITY = -1_000_000.0


def at_least_float32(x: Tensor) -> Tensor:
    """Half precision raised to float32; float32 and float64 are left as they are."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def subs_log_probs(logits: Tensor, xt: Tensor, mask_index: int) -> Tensor:
    """Log-probabilities of the clean token under SUBS.

    Args:
        logits: [B, L, V], any floating dtype; not modified.
        xt: [B, L] token ids, ``mask_index`` where masked.
        mask_index: id of the mask, anywhere in the vocabulary.

    Returns:
        [B, L, V] in float32 or better. Masked rows are normalised with the mask's probability
        zero (about -1e6 nats); a revealed row is 0 at its own token and -1e6 elsewhere.
        The operations are those of MDLM in the same order, so the values are the same bits.
    """
    logits = at_least_float32(logits)
    ban_V = torch.zeros(logits.shape[-1], dtype=logits.dtype, device=logits.device)
    ban_V[mask_index] = NEG_INFINITY
    logits = logits + ban_V
    log_probs = logits - torch.logsumexp(logits, dim=-1, keepdim=True)
    revealed = xt != mask_index
    log_probs = log_probs.masked_fill(revealed[..., None], NEG_INFINITY)
    own = torch.where(revealed, 0.0, log_probs.gather(-1, xt[..., None]).squeeze(-1))
    return log_probs.scatter(-1, xt[..., None], own[..., None])

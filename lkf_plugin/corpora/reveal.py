"""What the two-time transitions of all corpora share: which positions are revealed.

Clock of the paper: t=0 is all masked, t=1 is clean. From t to s each masked position is revealed on
its own with probability ``p = (s - t) / (1 - t)``. Entropies and log-probabilities are in nats.
Shape suffixes: B batch, L positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lkf_plugin.errors import UserError

Time = float | Tensor


def as_time(t: Time) -> Tensor:
    """Turn a time into a float64 tensor."""
    return torch.as_tensor(t, dtype=torch.float64)


def reveal_probability(t: Time, s: Time) -> Tensor:
    """Probability that a position masked at ``t`` is visible at ``s``.

    Args:
        t: earlier time in [0, 1).
        s: later time in [t, 1]; broadcasts against ``t``.

    Returns:
        ``(s - t) / (1 - t)``, float64.

    Raises:
        UserError: if the times are not ordered ``0 <= t <= s <= 1`` with ``t < 1``.
    """
    t, s = as_time(t), as_time(s)
    if not bool(((t >= 0) & (t < 1) & (t <= s) & (s <= 1)).all()):
        raise UserError("Give times with 0 <= t <= s <= 1 and t < 1.")
    return (s - t) / (1.0 - t)


def binary_entropy(p: Tensor) -> Tensor:
    """Entropy of a Bernoulli variable in nats."""
    return -torch.xlogy(p, p) - torch.xlogy(1.0 - p, 1.0 - p)


@dataclass(frozen=True)
class Reveal:
    """What happened between two noisy states of the same sequences.

    Attributes:
        revealed_BL: True where a masked position became visible.
        masked_B: number of masked positions at t, int64.
        revealed_B: number of them that became visible, int64.
        log_prob_B: log-probability of this choice of positions, float64; -inf where a visible
            word was altered.
    """

    revealed_BL: Tensor
    masked_B: Tensor
    revealed_B: Tensor
    log_prob_B: Tensor


def reveal(xs_BL: Tensor, xt_BL: Tensor, t: Time, s: Time, mask_id: int) -> Reveal:
    """Compare a state at ``s`` with the state at ``t`` that it came from.

    Args:
        xs_BL: ids at s, ``mask_id`` where masked.
        xt_BL: ids at t.
        t: earlier time, a number or shape (B,).
        s: later time, a number or shape (B,).
        mask_id: id of the mask; ids run from 0 to ``mask_id``.

    Returns:
        The comparison, with the log-probability of the reveal pattern alone (no values).
    """
    if xs_BL.shape != xt_BL.shape:
        raise UserError(
            f"The two states must have one shape, not {[*xs_BL.shape]} and {[*xt_BL.shape]}."
        )
    p_B = reveal_probability(t, s).to(xt_BL.device)
    masked_BL = xt_BL == mask_id
    revealed_BL = masked_BL & (xs_BL != mask_id)
    masked_B, revealed_B = masked_BL.sum(-1), revealed_BL.sum(-1)
    # An integer tensor times a single float64 would give float32, hence the doubles.
    shown_B, kept_B = revealed_B.double(), (masked_B - revealed_B).double()
    log_prob_B = torch.xlogy(shown_B, p_B) + torch.xlogy(kept_B, 1.0 - p_B)
    altered_B = ((xs_BL != xt_BL) & ~masked_BL).any(-1)
    return Reveal(
        revealed_BL=revealed_BL,
        masked_B=masked_B,
        revealed_B=revealed_B,
        log_prob_B=log_prob_B.masked_fill(altered_B, -torch.inf),
    )

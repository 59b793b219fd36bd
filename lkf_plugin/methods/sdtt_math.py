"""SDTT's mathematics: what a teacher says in a few small steps, and how far a student is from it.

From a partly masked text at time t the teacher makes m ancestral steps of size dt. Each masked
position is to be predicted as the teacher did in the step that revealed it, or in the last step if
none did; the student makes that prediction at once. A round later dt is m times as long.

Shape legend: B sequences, L positions, N masked positions, V vocabulary. Unit: nats. Times are
MDLM's: 0 is data, 1 is all masked.
Source: Deschenaux and Gulcehre 2025 (Beyond Autoregression: Fast LLMs via Self-Distillation Through
Time), and jdeschena/sdtt, MultiRoundSDTT.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

TEACHER_STEPS = 2  # m
MIN_TIME = 1e-5  # where sampling grids end


class Step(NamedTuple):
    """One step of the teacher: from time ``t_B`` to ``s_B``, both [B]."""

    t_B: Tensor
    s_B: Tensor


# --- times ---------------------------------------------------------------------------------------


def step_size(base_steps: int, number: int, min_time: float = MIN_TIME) -> float:
    """The teacher's dt in a round, counted from 0: that of ``base_steps`` steps, times m^number."""
    return (1 - min_time) / base_steps * TEACHER_STEPS**number


def student_steps(base_steps: int, number: int) -> int:
    """Steps of a whole chain by the student of round ``number``, from 0."""
    return base_steps // TEACHER_STEPS ** (number + 1)


def lattice_times(u: Tensor, count: int, min_time: float = MIN_TIME) -> Tensor:
    """``count`` equally spaced times shifted by one uniform ``u`` (0-dim), wrapped, [B].

    Source: SDTT, DiffusionCore._sample_t, where MDLM has one uniform per time.
    """
    shifted_B = (u + torch.arange(count, device=u.device) / count) % 1
    return (1 - min_time) * shifted_B + min_time


def exact_grid(t_B: Tensor, dt: float, min_time: float = MIN_TIME) -> list[Step]:
    """Adjoining steps t, t - dt, t - 2 dt, none of which passes ``min_time``."""
    marks = [(t_B - k * dt).clamp_min(min_time) for k in range(TEACHER_STEPS + 1)]
    return [Step(t, s) for t, s in zip(marks, marks[1:], strict=False)]


def upstream_grid(t_B: Tensor, dt: float, min_time: float = MIN_TIME) -> list[Step]:
    """The original code's steps, with which its published students were trained.

    Its interpolation from t to the end e = t - 2 dt weighs e by 1 - t where one minus the place on
    the way is meant: steps begin at t + (1 - t) e and (1 - t) e, so that the first one begins above
    t for most t, and the second far below. A step may end below 0, where every mask is revealed.

    Source: SDTT, MultiRoundSDTT._teacher_logprobs_on_mask.
    """
    wide_B = t_B.double()
    end_B = wide_B - TEACHER_STEPS * dt
    places = torch.linspace(1, 0, TEACHER_STEPS).tolist()
    starts = [wide_B * place + (1 - wide_B) * end_B for place in places]
    marks = [start.clamp_min(min_time).to(t_B) for start in starts]
    return [Step(t, t - dt) for t in marks]


GRIDS: dict[str, Callable[..., list[Step]]] = {"exact": exact_grid, "upstream": upstream_grid}


# --- the teacher's targets -----------------------------------------------------------------------


def reveal_weights(logp_BLV: Tensor, move_t_B: Tensor, move_s_B: Tensor, mask_index: int) -> Tensor:
    """Unnormalised law of a masked position after a step, [B, L, V].

    Args:
        logp_BLV: log-probabilities of the clean token.
        move_t_B, move_s_B: chance of a mask before and after; a negative one after reveals all.
    """
    weights = logp_BLV.exp() * (move_t_B - move_s_B)[:, None, None]
    weights[..., mask_index] = move_s_B[:, None]
    return weights


class Targets(NamedTuple):
    """What the teacher said.

    Attributes:
        logp_BLV: for positions that were masked at the start; elsewhere of no meaning.
        calls: network evaluations for the batch.
    """

    logp_BLV: Tensor
    calls: int


def teacher_targets(
    log_probs: Callable[[Tensor, Tensor], Tensor],
    xt_BL: Tensor,
    steps: list[Step],
    move_chance: Callable[[Tensor], Tensor],
    draw: Callable[[Tensor], Tensor],
    mask_index: int,
) -> Targets:
    """The teacher's log-probabilities as of the step that revealed each position.

    What the last step reveals changes nothing, so it is not drawn.

    Args:
        log_probs: the teacher, (x [B, L], t [B]) -> log-probabilities [B, L, V] under SUBS.
        xt_BL: text with masks at the first step's time.
        steps: from a grid.
        move_chance: t -> chance of a mask.
        draw: one token per row from weights.
    """
    x_BL = xt_BL
    target: Tensor | None = None
    for number, (t_B, s_B) in enumerate(steps):
        logp_BLV = log_probs(x_BL, t_B)
        masked_BL = x_BL == mask_index
        target = logp_BLV if target is None else torch.where(masked_BL[..., None], logp_BLV, target)
        if number < len(steps) - 1:
            weights = reveal_weights(logp_BLV, move_chance(t_B), move_chance(s_B), mask_index)
            x_BL = torch.where(masked_BL, draw(weights), x_BL)
    assert target is not None
    return Targets(target, len(steps))


# --- distances -----------------------------------------------------------------------------------


def kl_bwd(student_NV: Tensor, teacher_NV: Tensor) -> Tensor:
    """KL(student || teacher) per position, [N]: the original's default, which seeks modes."""
    return (student_NV.exp() * (student_NV - teacher_NV)).sum(-1)


def kl_fwd(student_NV: Tensor, teacher_NV: Tensor) -> Tensor:
    """KL(teacher || student) per position, [N]; on average least at the teacher's mean law."""
    return (teacher_NV.exp() * (teacher_NV - student_NV)).sum(-1)


def mse(student_NV: Tensor, teacher_NV: Tensor) -> Tensor:
    """Mean over the vocabulary of the squared difference of log-probabilities, [N]."""
    return (student_NV - teacher_NV).square().mean(-1)


def tvd(student_NV: Tensor, teacher_NV: Tensor) -> Tensor:
    """Sum of the absolute differences of log-probabilities, [N]; the original calls it so."""
    return (student_NV - teacher_NV).abs().sum(-1)


DISTANCES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "kl-bwd": kl_bwd,
    "kl-fwd": kl_fwd,
    "mse": mse,
    "tvd": tvd,
}


def without_mask(logp_NV: Tensor, mask_index: int) -> Tensor:
    """The columns of words, [N, V - 1].

    The mask's log-probability is about -1e6 under SUBS, where float32 resolves 0.06: differences
    of it are noise that a divergence weighs with zero, but ``mse`` and ``tvd`` would count.
    """
    return torch.cat((logp_NV[..., :mask_index], logp_NV[..., mask_index + 1 :]), dim=-1)

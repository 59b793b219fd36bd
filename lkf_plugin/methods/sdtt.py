"""SDTT: a student of MDLM's kind learns in one step what its teacher says in two.

After each round the student is the teacher and the steps are twice as long, so that R rounds from
a teacher of T steps leave a model of T / 2^R steps.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor

from lkf_plugin.corruption import move_chance_from_sigma
from lkf_plugin.errors import UserError
from lkf_plugin.host.ancestral import PREDICTORS
from lkf_plugin.host.contract import Loss
from lkf_plugin.likelihood.host_steps import HostSteps
from lkf_plugin.methods.mdlm import MDLM
from lkf_plugin.methods.method import METHODS, Method
from lkf_plugin.methods.sdtt_math import (
    DISTANCES,
    GRIDS,
    MIN_TIME,
    TEACHER_STEPS,
    Step,
    Targets,
    lattice_times,
    step_size,
    student_steps,
    teacher_targets,
    without_mask,
)
from lkf_plugin.methods.taught import Taught, TaughtSettings, check_rounds
from lkf_plugin.settings.fields import Choice, Count, Flag
from lkf_plugin.subs import subs_log_probs


class Lesson(NamedTuple):
    """A batch as student and teacher see it.

    Attributes:
        student_BLV: the student's log-probabilities, with their graph.
        targets: the teacher's.
        latent_B: what the student's law of the latent is from its teacher's, if there is one.
    """

    student_BLV: Tensor
    targets: Targets
    latent_B: Tensor | None = None


class SDTT(Taught, MDLM):
    """Self-distillation through time.

    Validation computes the student's own NELBO, as for MDLM. It is no measure of few steps, for
    which the student is trained, and says nothing of its teacher.
    """

    def _loss(self, x0: Tensor, attention_mask: Tensor) -> Loss:
        return (
            self.distil(x0, attention_mask) if self.training else super()._loss(x0, attention_mask)
        )

    def distil(self, x0: Tensor, attention_mask: Tensor) -> Loss:
        """Distance of the student from its teacher, per masked token."""
        t_B = self._distillation_times(x0)
        sigma_B, _ = self.noise(t_B)
        xt = self.q_xt(x0, move_chance_from_sigma(sigma_B)[:, None])
        student_BLV, targets, latent_B = self.lesson(xt, t_B, sigma_B)
        self.teacher_calls += targets.calls
        rows = ((xt == self.mask_index) & (attention_mask > 0)).nonzero(as_tuple=True)
        words = (
            without_mask(logp[rows], self.mask_index) for logp in (student_BLV, targets.logp_BLV)
        )
        distance_N = DISTANCES[self.settings.distance](*words)
        counted = torch.zeros_like(attention_mask, dtype=distance_N.dtype)
        distance_BL = counted.index_put(rows, distance_N)
        counted[rows] = 1
        total = distance_N.sum() if latent_B is None else distance_N.sum() + latent_B.sum()
        # a small batch may have no mask, which is nothing to learn from
        return Loss(total / max(len(distance_N), 1), distance_BL, counted)

    def _distillation_times(self, x0: Tensor) -> Tensor:
        count, device = x0.shape[0], x0.device
        if self.antithetic_sampling:
            return lattice_times(torch.rand(1, device=device)[0], count)
        return (1 - MIN_TIME) * torch.rand(count, device=device) + MIN_TIME

    def lesson(self, xt: Tensor, t_B: Tensor, sigma_B: Tensor) -> Lesson:
        """What both say of the masks of ``xt``."""
        targets = self.targets(xt, t_B)
        return Lesson(self.forward(xt, sigma_B), targets)

    @torch.no_grad()
    def targets(self, xt: Tensor, t_B: Tensor) -> Targets:
        """What the teacher of the present round says of the masks of ``xt``."""

        def log_probs(x: Tensor, time_B: Tensor) -> Tensor:
            sigma_B = self._process_sigma(self.noise(time_B)[0])
            return subs_log_probs(self.teacher(x, sigma_B), x, self.mask_index)

        steps = self.teacher_steps(t_B)
        return teacher_targets(log_probs, xt, steps, self.move_chance, self.draw, self.mask_index)

    def teacher_steps(self, t_B: Tensor) -> list[Step]:
        """The teacher's steps of the present round."""
        return GRIDS[self.settings.time_grid](t_B, step_size(self.settings.base_steps, self.round))

    def move_chance(self, t_B: Tensor) -> Tensor:
        """Chance of a mask at time t."""
        return move_chance_from_sigma(self.noise(t_B)[0])

    def _succeed(self) -> None:
        """The student teaches; with ``ema_on_growth`` both go on from its average."""
        if self.settings.ema_on_growth:
            self._go_on_from_average()
        self.teacher.load_state_dict(self.backbone.state_dict())
        if self.settings.reset_optimizer:
            self.restart_optimizer()

    def training_facts(self) -> dict[str, Any]:
        """Also the steps of a chain for which it was trained."""
        facts = super().training_facts()
        return {**facts, "trained_for_steps": student_steps(self.settings.base_steps, self.round)}


class SDTTSettings(TaughtSettings):
    """How far a teacher's step goes, and how the student is compared with it."""

    base_steps: Count
    distance: Annotated[str, Choice(*DISTANCES)]
    time_grid: Annotated[str, Choice(*GRIDS)]
    ema_on_growth: Flag
    reset_optimizer: Flag


def check_sdtt(settings: Any) -> None:
    """Rounds that divide the training and halve the teacher's steps.

    Raises:
        UserError: names the key.
    """
    check_rounds(settings)
    given = settings.method
    if given.base_steps % TEACHER_STEPS**given.rounds:
        raise UserError(
            f"method.rounds={given.rounds} must halve method.base_steps={given.base_steps} to "
            "a whole number each time: take a power of two for it, and fewer rounds."
        )
    if given.ema_on_growth and settings.training.ema == 0:
        raise UserError(
            "method.ema_on_growth=true needs an average: set training.ema, or take false."
        )


METHODS.add("sdtt")(
    Method(
        SDTT,
        SDTTSettings,
        predictors=PREDICTORS,
        step_model=HostSteps,
        likelihood="NELBO of the student itself over all times; its teacher's is another, and "
        "few-step samples are not what it bounds",
        check=check_sdtt,
        label="SDTT",
        color="#8c564b",
    )
)

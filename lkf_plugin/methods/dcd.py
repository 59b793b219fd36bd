"""DCD, DUO's own distillation: a student says at t what its teacher says a step nearer to the text.

Both read the argmax of one Gaussian latent at two times. Each round the step is twice as long, and
the student is the teacher.
"""

from __future__ import annotations

from typing import Annotated, Any

import torch
from torch import Tensor

from lkf_plugin.errors import UserError
from lkf_plugin.host.contract import Loss
from lkf_plugin.methods.dcd_math import draw_noise, gap, pair_of_times, tokens_at
from lkf_plugin.methods.duo import DUO, SIGNAL_RANGE
from lkf_plugin.methods.duo_curriculum import Curriculum, gamma_of_signal
from lkf_plugin.methods.method import METHODS, Method
from lkf_plugin.methods.sdtt import check_sdtt
from lkf_plugin.methods.sdtt_math import kl_bwd, kl_fwd, student_steps
from lkf_plugin.methods.taught import Taught, TaughtSettings
from lkf_plugin.settings.fields import Choice, Count, Flag, Number
from lkf_plugin.subs import at_least_float32

DISTANCES = {"kl-bwd": kl_bwd, "kl-fwd": kl_fwd}


class DCD(Taught, DUO):
    """Discrete consistency distillation.

    Validation computes the student's own NELBO, as for DUO.
    """

    def _read_curriculum(self) -> Curriculum:
        """The latent's range of noise; nothing is soft."""
        given = (self.settings.gamma_min, self.settings.gamma_max)
        ends = [
            gamma if gamma is not None else gamma_of_signal(alpha, self.vocab_size)
            for gamma, alpha in zip(given, SIGNAL_RANGE, strict=True)
        ]
        return Curriculum(0, 0, -3.0, -3.0, *ends)

    def _succeed(self) -> None:
        """The student's trained weights teach, or with ``ema_on_growth`` their average."""
        if self.settings.ema_on_growth:
            super()._succeed()
        else:
            self.teacher.load_state_dict(self.backbone.state_dict())

    def _loss(self, x0: Tensor, attention_mask: Tensor) -> Loss:
        if not self.training:
            return super()._loss(x0, attention_mask)
        times = pair_of_times(
            self._sample_t(len(x0), x0.device), gap(self.settings.base_steps, self.round)
        )
        noise = draw_noise(x0, self.vocab_size)
        said = []
        for network, t_B in zip((self.backbone, self.teacher), times, strict=True):
            gamma_B, alpha_B, _ = self.curriculum.signal(t_B, self.vocab_size)
            sigma_B = self._process_sigma(-torch.log(alpha_B).float())
            with torch.set_grad_enabled(network is self.backbone):
                logits = network(tokens_at(x0, gamma_B, noise), sigma_B)
                said.append(torch.log_softmax(at_least_float32(logits), dim=-1))
        self.calls += 1
        self.teacher_calls += 1
        nats_BL = DISTANCES[self.settings.distance](*said) * attention_mask
        return Loss(nats_BL.sum() / attention_mask.sum(), nats_BL, attention_mask)

    def training_facts(self) -> dict[str, Any]:
        """Also the steps of a chain for which it was trained: all rounds' steps make one of two."""
        steps = student_steps(self.settings.base_steps, self.round)
        return {**super().training_facts(), "trained_for_steps": steps}


class DCDSettings(TaughtSettings):
    """The steps, the comparison, and the latent's range."""

    base_steps: Count
    distance: Annotated[str, Choice(*DISTANCES)]
    gamma_min: Annotated[float | None, Number(null=True)]
    gamma_max: Annotated[float | None, Number(null=True)]
    ema_on_growth: Flag
    last_pass: Annotated[str, Choice("greedy", "ancestral", "none")]


def check_dcd(settings: Any) -> None:
    """Rounds that divide the training and whose steps fit, and a range of noise.

    Raises:
        UserError: names the key.
    """
    check_sdtt(settings)
    given = settings.method
    low, high = given.gamma_min, given.gamma_max
    if low is not None and high is not None and not low < high:
        raise UserError(
            f"method.gamma_min={low} must lie below method.gamma_max={high}: noise grows with "
            "gamma."
        )


METHODS.add("dcd")(
    Method(
        DCD,
        DCDSettings,
        process={
            "parameterization": "mean",
            "diffusion": "uniform_state",
            "time_conditioning": True,
        },
        predictors=("ancestral",),
        fills_masks=False,
        likelihood="NELBO of the student itself under DUO's noise; its teacher's is another, and "
        "few-step samples are not what it bounds",
        check=check_dcd,
        label="DCD",
        color="#17becf",
    )
)

"""``training``, ``optim``, ``lr_scheduler``, ``noise`` and ``init``: how weights are found."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from lkf_plugin.settings.fields import (
    Choice,
    Count,
    Flag,
    Fraction,
    Group,
    Inside,
    MaybePath,
    NotNegative,
    Number,
    Positive,
    Share,
    TargetName,
    Whole,
)
from lkf_plugin.train.optimizer import OPTIMIZERS


class Training(Group):
    """Times, weights and the average."""

    antithetic_sampling: Flag
    sampling_eps: Inside
    importance_sampling: Flag
    change_of_variables: Flag
    ema: Share


class Optim(Group):
    """AdamW by MDLM's names, and Muon's rate."""

    name: Annotated[str, Choice(*OPTIMIZERS)]
    lr: NotNegative
    muon_lr: NotNegative
    weight_decay: NotNegative
    beta1: Fraction
    beta2: Fraction
    eps: Positive


class Noise(Group):
    """MDLM's log-linear schedule; its bounds are not read, there or here."""

    type: Annotated[str, Choice("loglinear")]
    sigma_max: Positive
    sigma_min: Positive


class Init(Group):
    """Where training starts."""

    from_checkpoint: MaybePath
    latents: Annotated[str | None, Choice(None, "em")]
    latents_steps: Whole


class Schedule(Group):
    """A learning-rate schedule named by ``_target_``; those of others have keys of their own."""

    model_config = ConfigDict(extra="allow", frozen=True)
    target: TargetName = Field(alias="_target_")


class ConstantWarmup(Group):
    """Transformers' own, as in MDLM."""

    target: TargetName = Field(alias="_target_")
    num_warmup_steps: Whole


class CosineDecayWarmup(Group):
    """See ``train.schedules``."""

    target: TargetName = Field(alias="_target_")
    total_steps: Count
    warmup_steps: NotNegative
    start_lr: NotNegative
    final_lr: NotNegative


class LinearDecay(Group):
    """See ``train.schedules``."""

    target: TargetName = Field(alias="_target_")
    total_steps: Count
    warmup_steps: Whole
    decay_fraction: Annotated[float, Number(low=0, high=1, open_low=True)]


SCHEDULES: dict[Any, type[Group]] = {
    "transformers.get_constant_schedule_with_warmup": ConstantWarmup,
    "lkf_plugin.train.schedules.cosine_decay_warmup": CosineDecayWarmup,
    "lkf_plugin.train.schedules.linear_decay": LinearDecay,
}

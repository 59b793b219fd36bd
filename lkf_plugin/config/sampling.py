"""``sampling``, ``decode`` and ``eval``: what is drawn from a model, and how it is judged."""

from __future__ import annotations

from typing import Annotated, Any

from lkf_plugin.decode.compiled import MODES
from lkf_plugin.decode.options import SCORES, SELECTORS
from lkf_plugin.decode.registry import HOST_SAMPLER, POLICIES
from lkf_plugin.methods.settings import PREDICTORS
from lkf_plugin.settings.fields import (
    Choice,
    Count,
    FieldType,
    Flag,
    Fraction,
    Group,
    MaybePath,
    Number,
    Positive,
    Whole,
    Words,
    as_number,
)

AUTO = "auto"
ABSENT: Any = None  # default of a key that only some policies have


class Component(FieldType):
    """Who speaks."""

    def words(self) -> str:
        return "router, random, or a component's number from 0 on"

    def __call__(self, value: Any) -> str | int:
        if value in ("router", "random"):
            return str(value)
        number = as_number(value)
        if number != int(number) or number < 0:
            raise ValueError(self.words())
        return int(number)


class Sampling(Group):
    """The sampler by MDLM's names."""

    steps: Count
    predictor: Annotated[str, Choice(*(one for known in PREDICTORS.values() for one in known))]
    noise_removal: Flag
    eps: Fraction
    num_sample_batches: Count
    num_sample_log: Whole
    prompt: Annotated[str | None, Words(null=True)]
    semi_ar: Flag
    num_strides: Count
    stride_length: Count
    compile_mode: Annotated[str | None, Choice(None, *MODES)]


class Decode(Group):
    """A decoding policy and its knobs; each policy's YAML has those that it reads."""

    policy: Annotated[str, Choice(AUTO, HOST_SAMPLER, *POLICIES)]
    temperature: Positive = ABSENT
    component: Annotated[str | int, Component()] = ABSENT
    selector: Annotated[str, Choice(*SELECTORS)] = ABSENT
    score: Annotated[str, Choice(*SCORES)] = ABSENT
    score_draws: Count = ABSENT
    select_temperature: Positive = ABSENT
    shared_noise: Flag = ABSENT
    min_prior: Annotated[float | None, Number(low=0, high=1, null=True)] = ABSENT
    num_candidates: Count = ABSENT
    calibration_samples: Count = ABSENT
    switch_step: Whole = ABSENT
    probe_step: Whole = ABSENT
    probe_report: Flag = ABSENT


class Eval(Group):
    """Evaluation by MDLM's names."""

    checkpoint_path: MaybePath
    disable_ema: Flag
    generate_samples: Flag
    compute_generative_perplexity: Flag
    gen_ppl_eval_model_name_or_path: Annotated[
        str | None, Words("a model's name or folder", empty=True, null=True)
    ]
    perplexity_batch_size: Count
    compute_perplexity_on_sanity: Flag

"""``sampling`` and ``eval``: what is drawn from a model, and how it is judged."""

from __future__ import annotations

from typing import Annotated, Any

from lkf_plugin.config.mdlm_words import known_predictors
from lkf_plugin.decode.compiled import MODES
from lkf_plugin.likelihood.replay import RULES
from lkf_plugin.settings.fields import (
    Choice,
    Count,
    FieldType,
    Flag,
    Fraction,
    Group,
    MaybePath,
    Whole,
    Words,
    as_number,
)

AUTO = "auto"


class Sampling(Group):
    """The sampler by MDLM's names."""

    steps: Count
    predictor: Annotated[str, Choice(*known_predictors())]
    noise_removal: Flag
    eps: Fraction
    num_sample_batches: Count
    num_sample_log: Whole
    prompt: Annotated[str | None, Words(null=True)]
    semi_ar: Flag
    num_strides: Count
    stride_length: Count
    compile_mode: Annotated[str | None, Choice(None, *MODES)]


class StepNumbers(FieldType):
    """Numbers of sampling steps."""

    def words(self) -> str:
        """What is allowed."""
        return "null, or a list of whole numbers of at least 1, such as [1,2,4]"

    def __call__(self, value: Any) -> list[int] | None:
        """The list."""
        if value is None:
            return None
        numbers = [as_number(one) for one in value] if isinstance(value, list | tuple) else []
        if not numbers or any(one != int(one) or one < 1 for one in numbers):
            raise ValueError(self.words())
        return [int(one) for one in numbers]


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
    steps: Annotated[list[int] | None, StepNumbers()]
    replay: Annotated[str | None, Choice(None, *RULES)]

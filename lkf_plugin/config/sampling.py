"""``sampling`` and ``eval``: what is drawn from a model, and how it is judged."""

from __future__ import annotations

from typing import Annotated

from lkf_plugin.config.mdlm_words import known_predictors
from lkf_plugin.decode.compiled import MODES
from lkf_plugin.settings.fields import (
    Choice,
    Count,
    Flag,
    Fraction,
    Group,
    MaybePath,
    Whole,
    Words,
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

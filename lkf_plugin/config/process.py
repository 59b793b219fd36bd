"""The settings outside every group: what is run, where, and the diffusion process."""

from __future__ import annotations

from typing import Annotated, Any

from lkf_plugin.config.mdlm_words import BACKBONES, known_values
from lkf_plugin.settings.fields import (
    Arguments,
    Choice,
    EntryGroup,
    Flag,
    Group,
    Number,
    Path,
    Whole,
)

MODES = ("train", "ppl_eval", "sample_eval")
HOSTS = ("auto", "mdlm", "builtin")


class Process(Group):
    """The top of the configuration."""

    mode: Annotated[str, Choice(*MODES)]
    host: Annotated[str, Choice(*HOSTS)]
    seed: Annotated[int, Number(low=0, high=2**32 - 1, whole=True)]
    run_dir: Path
    parameterization: Annotated[str, Choice(*known_values("parameterization"))]
    backbone: Annotated[str, Choice(*BACKBONES)]
    diffusion: Annotated[str, Choice(*known_values("diffusion"))]
    time_conditioning: Flag
    subs_masking: Flag
    T: Whole
    callbacks: EntryGroup
    logger: EntryGroup
    wandb: Annotated[dict[str, Any], Arguments()]

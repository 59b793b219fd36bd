"""The settings outside every group: what is run, where, and the diffusion process."""

from __future__ import annotations

from typing import Annotated, Any

from lkf_plugin.methods.settings import BACKBONES, DIFFUSIONS, PARAMETERIZATIONS
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
    parameterization: Annotated[str, Choice(*PARAMETERIZATIONS)]
    backbone: Annotated[str, Choice(*BACKBONES)]
    diffusion: Annotated[str, Choice(*DIFFUSIONS)]
    time_conditioning: Flag
    subs_masking: Flag
    T: Whole
    callbacks: EntryGroup
    logger: EntryGroup
    wandb: Annotated[dict[str, Any], Arguments()]

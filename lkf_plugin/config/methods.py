"""``baseline``: one class per method."""

from __future__ import annotations

from typing import Annotated

from lkf_plugin.methods.settings import NONE
from lkf_plugin.settings.fields import Choice, Count, Flag, Group, Name, Number, Real, Whole


class Method(Group):
    """What every method has."""

    name: Name


class Drawing(Method):
    """A baseline, which draws tokens itself."""

    float64_draws: Flag


class Ar(Drawing):
    """Autoregressive."""

    start: Annotated[str, Choice("mask", "data")]


class Curriculum(Group):
    """DUO's soft tokens over the first steps."""

    start: Whole
    end: Whole
    tau_log10_start: Real
    tau_log10_end: Real
    gamma_min: Annotated[float | None, Number(null=True)]
    gamma_max: Annotated[float | None, Number(null=True)]
    columns: Count


class Duo(Drawing):
    """Uniform-state diffusion with the Gaussian curriculum."""

    last_pass: Annotated[str, Choice("greedy", "ancestral", "none")]
    curriculum: Curriculum


METHODS: dict[str, type[Method]] = {
    NONE: Method,
    "ar": Ar,
    "mdlm": Drawing,
    "sedd": Drawing,
    "duo": Duo,
}

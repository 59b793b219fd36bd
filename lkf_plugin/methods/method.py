"""What a method is to the rest of the house: how it is built, and what may be asked of it.

A method is one file: its module, and a ``Method`` that it registers::

    METHODS.add("sedd")(Method(SEDD, DrawingSettings, process={...}, predictors=(...)))

Nothing else asks for a method by its name. The name ``auto`` is the model's own: the latent kernel
for ``model.type=lkf``, MDLM's module for ``ddit``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from omegaconf import DictConfig, OmegaConf

from lkf_plugin.likelihood.step_model import StepModel
from lkf_plugin.registry import Registry
from lkf_plugin.settings.fields import Flag, Group, Name

NONE = "auto"
LKF, MDLM = "lkf", "mdlm"
ABSORBING = {"parameterization": "subs", "diffusion": "absorbing_state"}
UNIFORM = {"parameterization": "mean", "diffusion": "uniform_state", "time_conditioning": True}


class MethodSettings(Group):
    """What every method's group has."""

    name: Name


class DrawingSettings(MethodSettings):
    """Of a method that draws tokens itself."""

    float64_draws: Flag


@dataclass(frozen=True)
class Method:
    """A method.

    Attributes:
        build: (config, tokenizer) -> its module on the built-in host.
        settings: what its group may say.
        process: MDLM's keys as the method needs them.
        predictors: of ``sampling.predictor``, those that it has; empty: the key means nothing.
        network: settings of its network: ``own`` (what ``model.type`` says), ``denoiser``
            (MDLM's or the native trunk), ``latent`` or ``causal``.
        exact: its likelihood is exact, not a bound.
        likelihood: what its likelihood is of, where its name misleads; said beside every figure.
        step_model: module -> its sampler's step, where the likelihood of few steps is bounded.
        uses_steps: J means something to its sampler.
        fills_masks: it can fill the gaps of a prompt.
        any_times: it trains under all of MDLM's laws of the times.
        rows: configuration -> rows of its network that a sequence of a training step takes.
        by_chunks: configuration -> whether its loss never holds the logits of all positions.
        meant: what its runs mean that began before these keys of its group were there.
        check: further rules between settings (typed, see ``config.schema.Settings``).
        label: in tables.
        color: in figures.
    """

    build: Callable[[Any, Any], Any]
    settings: type[MethodSettings] = MethodSettings
    process: Mapping[str, Any] = field(default_factory=lambda: dict(ABSORBING))
    predictors: tuple[str, ...] = ()
    network: str = "denoiser"
    exact: bool = False
    likelihood: str = ""
    step_model: Callable[[Any], StepModel] | None = None
    uses_steps: bool = True
    fills_masks: bool = True
    any_times: bool = False
    rows: Callable[[Any], int] = lambda config: 1
    by_chunks: Callable[[Any], bool] = lambda config: False
    meant: Mapping[str, Any] = field(default_factory=dict)
    check: Callable[[Any], None] = lambda settings: None
    label: str = ""
    color: str = "#555555"

    @property
    def holds_teacher(self) -> bool:
        """Whether training holds a frozen network of the student's shape beside it."""
        return "teacher" in self.settings.model_fields


METHODS: Registry[Method] = Registry("method", "lkf_plugin.methods")


def given_name(config: DictConfig) -> str:
    """The group's name as it was given; runs older than the group have none."""
    return str(OmegaConf.select(config, "method.name", default=NONE))


def method_name(config: DictConfig) -> str:
    """Name of the method that a configuration trains; the model's own under its name.

    Latents other than one per sequence are in it: ``lkf-tree``.

    MDLM's other parameterizations, which only its own code has, go by theirs.
    """
    name = given_name(config).rpartition(".")[2]
    if name != NONE:
        return name
    if config.model.type == LKF:
        latent = OmegaConf.select(config, "model.latent", default="sequence")
        return LKF if latent == "sequence" else f"{LKF}-{latent.rpartition('.')[2]}"
    return MDLM if config.parameterization == "subs" else str(config.parameterization)


def is_latent_kernel(config: DictConfig) -> bool:
    """Whether its network has latents and is asked by decoding policies."""
    return config.model.type == LKF


def method_of(config: DictConfig) -> Method:
    """The method of a configuration."""
    return METHODS[given_name(config)]


def uses_steps(name: str) -> bool:
    """Whether J means something to the method that records call so."""
    return name not in METHODS or METHODS[name].uses_steps


def is_exact(name: str) -> bool:
    """Whether the likelihood of the method that records call so is exact."""
    return name in METHODS and METHODS[name].exact

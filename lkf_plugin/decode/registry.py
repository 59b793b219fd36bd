"""The decoding policies by name (Hydra group ``decode``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lkf_plugin.decode.options import DecodeOptions
from lkf_plugin.decode.policy import Decoded, DecodeRequest
from lkf_plugin.registry import Registry

Run = Callable[[DecodeRequest, Mapping[str, Any]], Decoded]


@dataclass(frozen=True)
class Policy:
    """A policy with the settings that it reads; called as ``policy(request, settings)``.

    Attributes:
        run: makes the samples.
        options: what ``settings`` may say; a policy with knobs of its own extends the class.
    """

    run: Run
    options: type[DecodeOptions] = DecodeOptions

    def __call__(self, request: DecodeRequest, settings: Mapping[str, Any]) -> Decoded:
        """Samples of a request."""
        return self.run(request, settings)


POLICIES: Registry[Policy] = Registry("decoding policy", "lkf_plugin.decode.policies")
AUTO = "auto"
HOST_SAMPLER = "mdlm"  # the host's own sampler of the marginal denoiser


def policy(name: str, options: type[DecodeOptions] = DecodeOptions) -> Callable[[Run], Run]:
    """Decorator that registers a policy under ``name``.

    Args:
        name: what ``decode.policy`` calls it.
        options: the dataclass of its settings.
    """

    def register(run: Run) -> Run:
        POLICIES.add(name)(Policy(run, options))
        return run

    return register


def read_options(settings: Mapping[str, Any]) -> DecodeOptions:
    """Settings of the group ``decode`` as the options of the policy that they name.

    A name without a dot that is no policy is an own sampler's; whether the model has it is its
    affair (``sampler_of``).

    Raises:
        UserError: an unknown module or key, or an unusable value.
    """
    name = str(settings.get("policy", AUTO))
    known = "." in name or name in POLICIES
    return (POLICIES[name].options if known else DecodeOptions).read(settings)


def resolve_policy(name: str, num_components: int) -> str:
    """``auto`` is MDLM's own sampler at M = 1, bit for bit, and best-of-M beyond."""
    if name == AUTO:
        return HOST_SAMPLER if num_components == 1 else "best_of_m"
    return name

"""Names of the decoding policies (Hydra group ``decode``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lkf_plugin.decode.policies.best_of_m import best_of_m
from lkf_plugin.decode.policies.best_of_n import best_of_n
from lkf_plugin.decode.policies.calibrated import calibrated
from lkf_plugin.decode.policies.commit import commit
from lkf_plugin.decode.policies.deferred import deferred
from lkf_plugin.decode.policies.halving import halving
from lkf_plugin.decode.policies.probe import probe
from lkf_plugin.decode.policies.solo import solo
from lkf_plugin.decode.policy import Decoded, DecodeRequest

Policy = Callable[[DecodeRequest, Mapping[str, Any]], Decoded]

POLICIES: dict[str, Policy] = {
    "commit": commit,
    "best_of_m": best_of_m,
    "best_of_n": best_of_n,
    "halving": halving,
    "deferred": deferred,
    "probe": probe,
    "solo": solo,
    "calibrated": calibrated,
}
HOST_SAMPLER = "mdlm"  # the host's own sampler of the marginal denoiser


def resolve_policy(name: str, num_components: int) -> str:
    """``auto`` is MDLM's own sampler at M = 1, bit for bit, and best-of-M beyond."""
    if name == "auto":
        return HOST_SAMPLER if num_components == 1 else "best_of_m"
    return name

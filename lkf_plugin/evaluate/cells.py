"""Names of a table's rows: a policy with the choices that set it apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lkf_plugin.decode.registry import POLICIES, read_options

_SHORT = {"score_draws": "T", "num_candidates": "n", "switch_step": "j", "probe_step": "j"}


def row_name(settings: Mapping[str, Any]) -> str:
    """Short name of a policy under settings; part of a file's name.

    The choices that tables are about stand in it in a fixed order; whatever else differs from the
    policy's defaults follows by its key, so that two rows of different settings differ in name.
    """
    options = read_options(settings)
    policy, usual = options.policy, type(options)()
    if policy not in POLICIES:
        return policy  # an own sampler, which reads none of them
    named = {"policy", "num_candidates"} if policy == "solo" else {"policy"}
    parts: list[str] = [policy]

    def tell(key: str, text: str) -> None:
        named.add(key)
        parts.append(text)

    selects = policy in ("best_of_m", "best_of_n") or (
        policy == "solo" and options.num_candidates > 1
    )
    if policy == "solo" or (policy in ("commit", "best_of_n") and options.component != "router"):
        component = options.component
        tell("component", "random" if component == "random" else f"k{component}")
    if selects:
        if policy != "best_of_m":  # which has one candidate per component
            tell("num_candidates", f"n{options.num_candidates}")
        tell("selector", options.selector)
        if options.selector in ("softmax", "centred"):
            tell("score", options.score)
        if options.selector == "softmax" and options.select_temperature != 1:
            tell("select_temperature", f"theta{options.select_temperature:g}")
    if policy == "deferred":
        tell("switch_step", f"j{options.switch_step}")
    if policy == "probe":
        tell("probe_step", f"j{options.probe_step}")
    if policy == "calibrated":
        tell("score", options.score)
        tell("select_temperature", f"theta{options.select_temperature:g}")
    if options.shared_noise and policy in ("best_of_m", "halving", "probe"):
        tell("shared_noise", "shared")
    if selects and options.draws not in (0, usual.score_draws):
        tell("score_draws", f"T{options.draws}")
    if options.temperature != 1:
        tell("temperature", f"temperature{options.temperature:.4g}")
    for key, value in options:
        if key not in named and value != getattr(usual, key):
            parts.append(f"{_SHORT.get(key, key)}{_word(value)}")
    return ".".join(parts)


def _word(value: Any) -> str:
    """A value as it may stand in a file's name."""
    return f"{value:g}" if isinstance(value, float) else str(value).lower()

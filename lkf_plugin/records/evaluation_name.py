"""File names of what one evaluation of a run writes: what distinguishes it, and a digest.

``commit.J4.seed1.3f9a0c1b``: the policy, the steps, the seed, and eight hex digits over the
checkpoint and all settings that a number could depend on. Evaluations of one run with other
settings lie side by side; the same one again replaces itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lkf_plugin.records.identity import identity_digest

# Where files lie and what is logged.
PLACE_AND_LOG = ("run_dir", "checkpointing", "callbacks", "logger", "wandb", "experiment")
# That, and how fast it goes.
WITHOUT_EFFECT = (
    *PLACE_AND_LOG,
    "init",
    "data.cache_dir",
    "eval.checkpoint_path",  # its digest counts
    "loader.num_workers",
    "loader.pin_memory",
    "sampling.num_sample_log",
)
DIGITS = 8


def evaluation_name(
    settings: Mapping[str, Any], checkpoint_digest: str, *parts: str, steps: int | None = None
) -> str:
    """The name, without an ending.

    Args:
        settings: all resolved settings by dotted key.
        checkpoint_digest: SHA-256 of the checkpoint.
        parts: what is shown first, such as the decoding policy.
        steps: J, where it means something.
    """
    counted = {key: value for key, value in settings.items() if not _without_effect(key)}
    digest = identity_digest("evaluation", {"checkpoint": checkpoint_digest}, counted)[:DIGITS]
    shown = [*parts, *([] if steps is None else [f"J{steps}"]), f"seed{settings['seed']}", digest]
    return re.sub(r"[^A-Za-z0-9._=+-]", "_", ".".join(shown))


def _without_effect(key: str) -> bool:
    return any(key == one or key.startswith(f"{one}.") for one in WITHOUT_EFFECT)

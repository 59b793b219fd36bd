"""Settings that follow from others, and what they are when a run goes on.

A value that somebody typed must stay as it was. One that follows from others (a batch that fits
the memory, a warm-up that is a tenth of ``trainer.max_steps``) stays as the run began with, so that
a longer run or a change of the rule that derived it forbids nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from lkf_plugin.errors import UserError

KEPT = (
    "loader.batch_size",
    "loader.eval_batch_size",
    "lr_scheduler.warmup_steps",
    "method.curriculum.start",
    "method.curriculum.end",
)
DEVICES = ("trainer.devices", "trainer.num_nodes")  # batch sizes per device go by them
END = "lr_scheduler.total_steps"


def keep_derived(config: DictConfig, saved: Mapping[str, Any]) -> list[str]:
    """Gives derived settings the values that the run began with, in place.

    Args:
        config: the composed config of a run that goes on.
        saved: its saved settings.

    Returns:
        The keys whose values changed by this.
    """
    old = OmegaConf.create(dict(saved))
    same_devices = all(_value(old, key) == OmegaConf.select(config, key) for key in DEVICES)
    changed = []
    for key in KEPT:
        value = _value(old, key)
        if value is None or not is_derived(config, key):
            continue
        if key.startswith("loader.") and not same_devices:
            continue
        if OmegaConf.select(config, key) != value:
            changed.append(key)
        with open_dict(config):
            OmegaConf.update(config, key, value)
    return changed


def is_derived(config: DictConfig, key: str) -> bool:
    """Whether a setting is there and follows from others."""
    parent, _, name = key.rpartition(".")
    node = OmegaConf.select(config, parent)
    if not isinstance(node, DictConfig) or name not in node:
        return False
    return OmegaConf.is_interpolation(node, name)


def settle_schedule(config: DictConfig, saved: Mapping[str, Any], step: int) -> str | None:
    """The end of the learning-rate schedule of a run that goes on to another length, in place.

    Where the rate up to ``step`` would have been the same with the new end, that is taken.
    Otherwise somebody must say the end: the old rate may be zero from there on, and the new one
    may jump up.

    Args:
        config: of the run that goes on.
        saved: its saved settings.
        step: where it stands.

    Returns:
        A sentence on what happens to the rate, or None where nothing does.

    Raises:
        UserError: the schedule's end must be said.
    """
    before = _value(OmegaConf.create(dict(saved)), END)
    if before is None or OmegaConf.select(config, END) in (None, before):
        return None
    after = OmegaConf.select(config, END)
    old, new = rate_at(config, step, before), rate_at(config, step, after)
    if old == new:
        return None
    if is_derived(config, END):
        raise UserError(
            f"trainer.max_steps={config.trainer.max_steps} moves the end of the learning-rate "
            f"schedule from step {before} to {after}, and the rate at step {step} from {old:.3g} "
            f"to {new:.3g}: say {END}={after} for that, or {END}={before} to stay on the old line "
            f"({rate_at(config, before, before):.3g} from step {before} on)."
        )
    return (
        f"the learning-rate schedule ends at step {after} instead of {before}: the rate at step "
        f"{step} goes from {old:.3g} to {new:.3g}"
    )


def rate_at(config: DictConfig, step: int, total_steps: int) -> float:
    """``optim.lr`` at a step under ``lr_scheduler`` with another end."""
    import hydra.utils
    import torch

    weight = torch.nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.SGD([weight], lr=float(config.optim.lr))
    schedule = hydra.utils.instantiate(
        config.lr_scheduler, optimizer=optimizer, total_steps=total_steps
    )
    return float(config.optim.lr * schedule.lr_lambdas[0](step))


def saved_run(config: DictConfig) -> Path | None:
    """The folder of the run that this one goes on from, or None."""
    path = OmegaConf.select(config, "checkpointing.resume_ckpt_path")
    if config.mode != "train" or config.checkpointing.resume_from_ckpt is not True:
        return None
    if not isinstance(path, str) or not Path(path).is_file():
        return None
    return Path(path).parent.parent


def _value(config: Any, key: str) -> Any:
    return OmegaConf.select(config, key)

"""The trainer that MDLM instantiates from `config.trainer`, with this plugin's loggers.

MDLM knows one logger, wandb. Where it passes none Lightning would take TensorBoard or CSV,
whichever is installed; the `logger` group of our configs decides instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lightning

TARGET = f"{__name__}.build_trainer"
# The trainer of the current run: MDLM's entry functions return nothing, so it is kept here.
_latest: list[lightning.Trainer] = []


def build_trainer(
    *, lkf_loggers: Mapping[str, Any] | None = None, logger: Any = None, **settings: Any
) -> lightning.Trainer:
    """Build MDLM's trainer.

    Args:
        lkf_loggers: the instantiated `logger` group, by name.
        logger: what MDLM passes, a WandbLogger or None.
        settings: all other keys of `config.trainer` and MDLM's own arguments.
    """
    loggers = list((lkf_loggers or {}).values())
    if logger is not None:
        loggers.append(logger)
    trainer = lightning.Trainer(logger=loggers or False, **settings)
    _latest[:] = [trainer]
    return trainer


def take_trainer() -> lightning.Trainer:
    """The trainer that was built last, once."""
    return _latest.pop()

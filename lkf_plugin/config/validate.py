"""The one check of a configuration, before anything is loaded."""

from __future__ import annotations

from omegaconf import DictConfig, open_dict

from lkf_plugin.config.rules import check_rules
from lkf_plugin.config.schema import Reader, Settings, write_back


def validate(config: DictConfig, host: str) -> Settings:
    """Refuses what cannot run.

    Values that YAML or the command line gave in another type (``1e3`` for a whole number, ``7``
    for a name) get their own type in ``config``; ``trainer.val_check_interval`` becomes whole
    steps.

    Args:
        config: the composed config.
        host: ``builtin`` or ``mdlm``; MDLM can do some things that the built-in host cannot.

    Returns:
        The typed settings.

    Raises:
        UserError: one sentence that names a key, its value and what is allowed.
    """
    reader = Reader(config)
    settings = reader.read()
    check_rules(settings, host)
    settings.data.check(settings.model.length)
    write_back(settings, reader, config)
    if host == "builtin":
        _validate_between_steps(config)
    return settings


def _validate_between_steps(config: DictConfig) -> None:
    """Rounds the interval up to whole optimizer steps, so that a smaller batch needs no sums."""
    trainer = config.trainer
    every, per_step = int(trainer.val_check_interval), trainer.accumulate_grad_batches
    steps = -(-every // per_step)
    with open_dict(config):
        trainer.val_check_interval = steps * per_step

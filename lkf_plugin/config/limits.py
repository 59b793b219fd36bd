"""What can be checked only once the data is there: how many batches a validation has."""

from __future__ import annotations

from omegaconf import DictConfig

from lkf_plugin.errors import UserError


def check_validation_share(config: DictConfig, sequences: int) -> None:
    """Refuses a share of the held-out batches that is no batch at all.

    Args:
        config: a valid config.
        sequences: held-out sequences.

    Raises:
        UserError: says how many batches there are.
    """
    trainer, limit = config.trainer, config.trainer.limit_val_batches
    devices = trainer.devices * trainer.num_nodes
    batches = -(-sequences // (config.loader.eval_batch_size * devices))
    if isinstance(limit, float) and 0 < limit < 1 and int(limit * batches) < 1:
        raise UserError(
            f"trainer.limit_val_batches={limit} is none of the {batches} held-out batches: take a "
            f"share of at least {1 / batches:.3g}, a whole number of batches, or 0 for no "
            "validation."
        )

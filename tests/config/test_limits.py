"""A share of the held-out batches is at least one of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from omegaconf import DictConfig

from lkf_plugin.config.limits import check_validation_share
from lkf_plugin.errors import UserError

Compose = Callable[..., DictConfig]


@pytest.mark.parametrize("limit", ["1.0", "0.0", "0", "7", "0.1"])
def test_taken(compose: Compose, limit: str) -> None:
    config = compose(f"trainer.limit_val_batches={limit}", "loader.eval_batch_size=4")
    check_validation_share(config, 40)


def test_none_of_the_batches(compose: Compose) -> None:
    config = compose(
        *("trainer.limit_val_batches=0.001", "loader.eval_batch_size=4", "trainer.devices=1")
    )
    with pytest.raises(UserError, match="0.001 is none of the 10 held-out batches: .*least 0.1,"):
        check_validation_share(config, 40)

"""What follows from other settings stays as a run began, and a schedule's end is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from omegaconf import DictConfig

from lkf_plugin.config.derived import END, is_derived, keep_derived, rate_at, settle_schedule
from lkf_plugin.errors import UserError
from lkf_plugin.runs.settings import plain

Compose = Callable[..., DictConfig]
COSINE, LINEAR = "lr_scheduler=cosine_decay_warmup", "lr_scheduler=linear_decay"
HERE = ("trainer.devices=1", "trainer.accelerator=cpu")


def saved(compose: Compose, *overrides: str) -> dict[str, Any]:
    return plain(compose(*HERE, *overrides))


def test_warm_up_of_a_longer_run(compose: Compose) -> None:
    before = saved(compose, COSINE, "trainer.max_steps=1000")
    longer = compose(*HERE, COSINE, "trainer.max_steps=3000")
    assert is_derived(longer, "lr_scheduler.warmup_steps")
    keep_derived(longer, before)
    assert longer.lr_scheduler.warmup_steps == 100


def test_curriculum_of_a_longer_run(compose: Compose) -> None:
    before = saved(compose, "method=duo", "trainer.max_steps=1000")
    longer = compose(*HERE, "method=duo", "trainer.max_steps=3000")
    keep_derived(longer, before)
    assert longer.method.curriculum.end == 500


def test_what_was_typed_is_left_for_the_comparison(compose: Compose) -> None:
    before = saved(compose, COSINE, "trainer.max_steps=1000")
    typed = compose(*HERE, COSINE, "trainer.max_steps=3000", "lr_scheduler.warmup_steps=7")
    keep_derived(typed, before)
    assert typed.lr_scheduler.warmup_steps == 7


def test_batch_that_fitted(compose: Compose) -> None:
    before = saved(compose, "loader.global_batch_size=64", "loader.batch_size=4")
    again = compose(*HERE, "loader.global_batch_size=64", "model=lkf-tiny", "loss=mixture")
    assert again.loader.batch_size == 64
    keep_derived(again, before)
    assert (again.loader.batch_size, again.trainer.accumulate_grad_batches) == (4, 16)
    other = compose("trainer.devices=2", "loader.global_batch_size=64", "model=lkf-tiny")
    keep_derived(other, before)
    assert other.loader.batch_size != 4  # per device, of other devices


def test_plateau_goes_on_by_itself(compose: Compose) -> None:
    """Before the fall the old end and the new one give the same rate."""
    before = saved(compose, LINEAR, "trainer.max_steps=1000")
    longer = compose(*HERE, LINEAR, "trainer.max_steps=3000")
    assert settle_schedule(longer, before, step=500) is None
    assert longer.lr_scheduler.total_steps == 3000


def test_a_rate_that_would_jump_must_be_asked_for(compose: Compose) -> None:
    before = saved(compose, LINEAR, "trainer.max_steps=1000", "optim.lr=0.01")
    longer = compose(*HERE, LINEAR, "trainer.max_steps=3000", "optim.lr=0.01")
    with pytest.raises(UserError, match=f"from step 1000 to 3000.*0 to 0.01.*{END}=3000"):
        settle_schedule(longer, before, step=1000)
    said = compose(*HERE, LINEAR, "trainer.max_steps=3000", f"{END}=3000", "optim.lr=0.01")
    assert "goes from 0 to 0.01" in str(settle_schedule(said, before, step=1000))
    kept = compose(*HERE, LINEAR, "trainer.max_steps=3000", f"{END}=1000")
    assert settle_schedule(kept, before, step=1000) is None


def test_rate_is_the_schedules_own(compose: Compose) -> None:
    config = compose(*HERE, LINEAR, "optim.lr=0.01", "lr_scheduler.decay_fraction=0.5")
    assert rate_at(config, 50, 1000) == pytest.approx(0.005)  # half of the warm-up
    assert rate_at(config, 750, 1000) == pytest.approx(0.005)  # half of the fall

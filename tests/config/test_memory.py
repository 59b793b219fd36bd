"""The batch that a CPU takes at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from omegaconf import DictConfig

from lkf_plugin.config.memory import BUDGET, estimate, largest_divisor

Compose = Callable[..., DictConfig]
CPU = ("trainer.accelerator=cpu", "trainer.devices=1")
OWN_TEXT = ("data=text", "data.path=a.txt", "model=lkf-tiny", "loss=mixture")


@pytest.mark.parametrize(("number", "most"), [(512, 100), (512, 1), (97, 96), (360, 77), (6, 6)])
def test_largest_divisor(number: int, most: int) -> None:
    brute = max(one for one in range(1, most + 1) if number % one == 0)
    assert largest_divisor(number, most) == brute


def test_a_step_fits_and_the_global_batch_stays(compose: Compose) -> None:
    config = compose(*CPU, *OWN_TEXT)
    memory, batch = estimate(config), config.loader.batch_size
    assert 1 < batch < 512 and 512 % batch == 0
    assert memory.of_batch(batch) <= BUDGET < memory.of_batch(2 * batch)
    assert batch * config.trainer.accumulate_grad_batches == config.loader.global_batch_size == 512


def test_a_gpu_takes_its_share(compose: Compose, monkeypatch: pytest.MonkeyPatch) -> None:
    config = compose("trainer.accelerator=cuda", "trainer.devices=4", *OWN_TEXT)
    assert (config.loader.batch_size, config.loader.eval_batch_size) == (128, 128)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert compose("trainer.accelerator=auto", "trainer.devices=1").loader.batch_size == 512


# peak resident size of two steps in a process of its own, GB (x86-64, one thread, torch 2.13)
MEASURED = [
    (("model=lkf-tiny", "loss=mixture"), 4096, 4, 0.67),
    (("model=lkf-tiny", "loss=mixture"), 4096, 32, 1.53),
    (("model=tiny", "loss=mdlm"), 4096, 8, 2.00),
    (("model=tiny", "loss=mdlm"), 4096, 32, 4.62),
    (("model=lkf-small", "loss=mixture"), 4096, 4, 1.81),
    (("model=lkf-tiny", "loss=mixture", "model.num_components=1"), 30522, 8, 1.39),
    (("model=lkf-tiny", "loss=mixture", "model.num_components=1"), 30522, 32, 3.58),
]


@pytest.mark.parametrize(("overrides", "vocab", "batch", "peak"), MEASURED)
def test_estimate_against_peaks(
    compose: Compose, overrides: tuple[str, ...], vocab: int, batch: int, peak: float
) -> None:
    config = compose(*CPU, "data=sotu", "model.length=128", f"data.vocab_size={vocab}", *overrides)
    assert estimate(config).of_batch(batch) / 1e9 == pytest.approx(peak, rel=0.2)


def test_a_method_says_what_its_step_holds(compose: Compose) -> None:
    size = ("data=sotu", "model=tiny", "model.length=128", "data.vocab_size=4096")
    of = {
        name: estimate(compose(*CPU, *size, f"method={name}"))
        for name in ("mdlm", "sedd", "sdtt", "di4c")
    }
    assert of["sedd"].per_sequence < of["mdlm"].per_sequence  # its head runs by chunks
    assert of["sdtt"].per_sequence == of["mdlm"].per_sequence
    assert of["sdtt"].fixed > of["mdlm"].fixed  # the teacher
    assert of["di4c"].per_sequence == 16 * of["mdlm"].per_sequence  # a row per latent

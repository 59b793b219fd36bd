"""CPU seconds of training: what counts, and what a checkpoint says of them."""

from __future__ import annotations

import torch

from lkf_plugin.train.cpu_seconds import CpuSeconds, cpu_seconds


def test_only_what_lies_in_batches_counts():
    clock = CpuSeconds()
    for _ in range(2):
        clock.on_train_batch_start()
        torch.randn(300, 300).matmul(torch.randn(300, 300))
        clock.on_train_batch_end()
        inside = clock.seconds
        sum(i * i for i in range(100_000))
        assert clock.seconds == inside > 0


def test_a_run_without_the_callback_says_nothing():
    assert cpu_seconds({"callbacks": {}}) is None and cpu_seconds({}) is None

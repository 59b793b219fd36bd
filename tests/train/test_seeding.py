"""Seeds are a pure function of the position in a run."""

from __future__ import annotations

import itertools

import torch

from lkf_plugin.train.seeding import derive_seed, seed_position, splitmix64


def test_splitmix64_reference_values() -> None:
    """First outputs of the published generator from state 0."""
    gamma = 0x9E3779B97F4A7C15
    assert splitmix64(0) == 0xE220A8397B1DCDAF
    assert splitmix64(gamma) == 0x6E789E6AA1B965F4
    assert splitmix64((2 * gamma) % 2**64) == 0x06C45D188009454F


def test_positions_get_seeds_of_their_own() -> None:
    positions = list(itertools.product(("train", "valid"), range(50), (0, 1)))
    seeds = [derive_seed(seed, *p) for seed in (0, 1, -1) for p in positions]
    assert len({s % 2**32 for s in seeds}) == len(seeds)  # torch's CPU generator keeps 32 bits
    assert derive_seed(1, 2, 3) != derive_seed(1, 3, 2)
    assert derive_seed(1, "train", 2**70) != derive_seed(1, "train", 0)


def test_same_position_same_draws() -> None:
    seed_position(3, "train", 10, 0)
    first = torch.rand(4)
    torch.rand(100)
    seed_position(3, "train", 10, 0)
    assert torch.equal(torch.rand(4), first)

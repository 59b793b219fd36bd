"""Counter-based uniforms: reproducible, uniform, independent."""

from __future__ import annotations

import torch

from lkf_plugin.decode.noise import Stream, mix, uniforms


def test_a_draw_depends_on_its_coordinates_only():
    seeds = mix(7, torch.arange(5))
    whole = uniforms(seeds, 3, 10, Stream.TOKEN)
    assert torch.equal(uniforms(seeds[2:3], 3, 10, Stream.TOKEN), whole[2:3])
    assert torch.equal(uniforms(seeds, 3, 4, Stream.TOKEN), whole[:, :4])


def test_different_coordinates_differ():
    seeds = mix(7, torch.arange(2))
    base = uniforms(seeds, 3, 10, Stream.TOKEN)
    for other in (
        uniforms(seeds, 4, 10, Stream.TOKEN),
        uniforms(seeds, 3, 10, Stream.REVEAL),
        uniforms(mix(8, torch.arange(2)), 3, 10, Stream.TOKEN),
        uniforms(seeds.flip(0), 3, 10, Stream.TOKEN),
    ):
        assert (other != base).all()


def test_uniform_in_bins_and_uncorrelated():
    u = uniforms(mix(1, torch.arange(400)), 0, 500, Stream.REVEAL)
    assert 0 < u.min() and u.max() < 1
    counts = torch.histc(u, 50, 0, 1)
    expected = u.numel() / 50
    chi2 = ((counts - expected) ** 2 / expected).sum().item()
    assert 22 < chi2 < 86  # 0.1 % and 99.9 % points of chi-square with 49 degrees of freedom
    v = uniforms(mix(1, torch.arange(400)), 1, 500, Stream.REVEAL)
    pairs = [(u, v), (u[:, 1:], u[:, :-1]), (u[1:], u[:-1])]
    for a, b in pairs:
        rho = torch.corrcoef(torch.stack((a.flatten(), b.flatten())))[0, 1].item()
        assert abs(rho) < 4 / a.numel() ** 0.5


def test_mix_order_matters():
    assert mix(1, 2) != mix(2, 1)
    assert mix(torch.tensor([5]), 1).shape == (1,)

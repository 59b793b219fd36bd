"""The compiled graph gives what the plain network gives, for any number of rows."""

from __future__ import annotations

import pytest
import torch

from lkf_plugin.corruption import LogLinearNoise
from lkf_plugin.decode.compiled import CompiledRows
from lkf_plugin.decode.engine import RolloutEngine, Rollouts
from lkf_plugin.decode.network import DecodeNetwork
from lkf_plugin.decode.noise import mix
from tests.tiny import tiny_backbone


def networks(**changes):
    """(plain, compiled) of one model, and the compiled one's graph replaced by what it traces."""
    model = tiny_backbone(**changes).float().eval()
    plain = DecodeNetwork(model, LogLinearNoise(), lambda s: s.float())
    compiled = DecodeNetwork(
        model, LogLinearNoise(), lambda s: s.float(), compile_mode="reduce-overhead"
    )
    return plain, compiled


def roll(net, rows=6, steps=7):
    m = net.mask_index
    starts = torch.tensor([[m] * 8, [m, 1, m, 4, m, m, 0, m]]).repeat_interleave(rows // 2, 0)
    components = torch.arange(rows) % net.num_components
    rollouts = Rollouts.start(starts, components, mix(9, torch.arange(rows)))
    RolloutEngine(net, steps).finish(rollouts)
    return rollouts


@pytest.mark.parametrize("trunk", ["matched", "native"])
@pytest.mark.parametrize("M", [1, 2])
def test_padded_rows_give_the_same_samples(monkeypatch, trunk, M):
    """The shape logic alone: the graph runs as plain Python, its sizes are looked at."""
    plain, compiled = networks(trunk=trunk, num_components=M)
    assert compiled.compiled is not None
    sizes = []

    def traced(x_PL, *rest):
        sizes.append(x_PL.shape[0])
        return compiled.compiled._rows(x_PL, *rest)

    monkeypatch.setattr(compiled.compiled, "_graph", traced)
    expected, found = roll(plain), roll(compiled)
    assert torch.equal(found.x_RL, expected.x_RL)
    assert torch.equal(found.calls_R, expected.calls_R)
    torch.testing.assert_close(found.evidence_R, expected.evidence_R, rtol=1e-5, atol=1e-5)
    assert sizes and all(size >= 2 and size & (size - 1) == 0 for size in sizes)
    assert sum(sizes) < 2 * int(expected.calls_R.sum()) + 2 * len(sizes)


def test_answers_share_no_memory_with_the_graph(monkeypatch):
    """CUDA graphs overwrite their buffers at the next call."""
    _, compiled = networks()
    assert compiled.compiled is not None
    given = []

    def traced(*arguments):
        for old in given:
            old.fill_(float("nan"))
        given[:] = compiled.compiled._rows(*arguments)
        return tuple(given)

    monkeypatch.setattr(compiled.compiled, "_graph", traced)
    x_RL = torch.full((3, 8), compiled.mask_index)
    places = torch.tensor([0, 1, 2]), torch.tensor([5, 0, 3])
    asked = (x_RL, torch.tensor([[0], [1], [0]]), 0.7, *places)
    first = compiled.hidden(*asked)
    again = compiled.hidden(*asked)
    assert torch.isfinite(first).all() and torch.equal(first, again)


def test_unknown_mode():
    with pytest.raises(ValueError, match="reduce-overhead"):
        CompiledRows(tiny_backbone(), "fast")


@pytest.mark.slow
def test_torch_compile_itself():
    """The real graph, on whatever device is here."""
    plain, compiled = networks()
    expected, found = roll(plain), roll(compiled)
    assert torch.equal(found.x_RL, expected.x_RL)
    torch.testing.assert_close(found.evidence_R, expected.evidence_R, rtol=1e-4, atol=1e-4)

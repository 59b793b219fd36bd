"""Draws from logits in tiles: the law is that of the whole row, whatever the tiles."""

import pytest
import torch

from lkf_plugin.corruption import LogLinearNoise
from lkf_plugin.decode.network import DecodeNetwork
from lkf_plugin.decode.token_draw import draw_token, take_likeliest
from lkf_plugin.subs import NEG_INFINITY
from lkf_plugin.token_head import tiled
from tests.tiny import tiny_backbone

WIDTHS = [1, 2, 4, 5, 7, 11]  # of a tile: 11 columns in all, so that most last tiles are narrower


def some_logits(rows, seed=0, dtype=torch.float64):
    noise = torch.Generator().manual_seed(seed)
    return 3 * torch.randn(rows, 11, dtype=torch.float64, generator=noise).to(dtype)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("temperature", [1.0, 0.5, 1.7])
def test_draws_follow_the_tempered_law_and_report_the_plain_one(width, temperature):
    logits = some_logits(1)
    u = (torch.arange(60_000, dtype=torch.float64) + 0.5) / 60_000  # evenly spaced
    token, logp = draw_token(logits.expand(60_000, -1).split(width, -1), u, temperature)
    law = torch.softmax(logits[0] / temperature, -1)
    seen = torch.bincount(token, minlength=11) / 60_000
    torch.testing.assert_close(seen.double(), law, rtol=0, atol=2e-5)
    torch.testing.assert_close(logp, torch.log_softmax(logits[0], -1)[token])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", WIDTHS)
def test_each_row_takes_the_first_token_whose_cdf_exceeds_its_uniform(width, dtype):
    logits = some_logits(500, 1, dtype)
    u = torch.rand(500, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    token, logp = draw_token(logits.split(width, -1), u)
    law = torch.softmax(logits.double(), -1)
    assert torch.equal(token, (law.cumsum(-1) > u[:, None]).int().argmax(-1))
    torch.testing.assert_close(logp, law.log().gather(-1, token[:, None]).squeeze(-1))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("u", [0.0, 2.0**-53, 0.5, 1 - 2.0**-53])
def test_tokens_without_mass_are_never_drawn_at_the_edges(width, u):
    """A sum over tiles and one over columns round apart: the last token with mass ends both."""
    logits = some_logits(400, 3)
    logits[:, [0, 4, 9, 10]] += NEG_INFINITY
    token, logp = draw_token(logits.split(width, -1), torch.full((400,), u, dtype=torch.float64))
    assert not torch.isin(token, torch.tensor([0, 4, 9, 10])).any() and logp.isfinite().all()


def test_logits_far_apart_from_tile_to_tile():
    logits = torch.tensor([[-900.0, -901.0, 700.0, 701.0, -5000.0, 699.0]], dtype=torch.float64)
    u = torch.tensor([0.2], dtype=torch.float64)
    token, logp = draw_token(logits.split(2, -1), u)
    law = torch.softmax(logits[0], -1)
    assert token == 2 and law[2] > 0.2
    torch.testing.assert_close(logp, law[2].log()[None])


@pytest.mark.parametrize("width", WIDTHS)
def test_the_likeliest_token_is_the_first_of_equal_ones(width):
    logits = some_logits(300, 4)
    logits[:100, 3] = logits[:100, 8] = logits[:100].amax(-1) + 1
    token, logp = take_likeliest(logits.split(width, -1))
    assert (token[:100] == 3).all()
    assert torch.equal(token, logits.argmax(-1))
    torch.testing.assert_close(logp, torch.log_softmax(logits, -1).amax(-1))


@pytest.mark.parametrize("columns", [2, 3, 1024])
def test_the_head_gives_the_same_tokens_in_tiles_and_never_the_mask(columns, monkeypatch):
    net = DecodeNetwork(tiny_backbone(), LogLinearNoise(), lambda sigma: sigma.double())
    head = net.backbone.head_weight
    hidden = torch.randn(50, head.shape[1], dtype=torch.float64)
    u = torch.linspace(1e-12, 1 - 1e-12, 50, dtype=torch.float64)
    whole, logp = draw_token(net.logit_tiles(hidden), u)
    monkeypatch.setattr(tiled, "CPU_COLUMNS", columns)
    assert len(list(net.logit_tiles(hidden))) == -(-head.shape[0] // columns)
    token, logp_tiled = draw_token(net.logit_tiles(hidden), u)
    assert torch.equal(token, whole) and (token != net.mask_index).all()
    torch.testing.assert_close(logp_tiled, logp)
    likeliest, logp = take_likeliest(net.logit_tiles(hidden))
    assert (likeliest != net.mask_index).all() and (logp < 0).all()

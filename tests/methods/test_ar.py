"""The autoregressive baseline sees no future, starts uniform and knows its likelihood."""

from __future__ import annotations

import math

import pytest
import torch

from lkf_plugin.backbone import attention
from lkf_plugin.methods.causal import CausalTransformer

V, MASK = 88, 87


def test_size_is_the_papers():
    with torch.device("meta"):
        network = CausalTransformer(30522, hidden_size=512, n_blocks=12, n_heads=8, dropout=0.0)
    assert sum(weight.numel() for weight in network.parameters()) == 69_077_306


@pytest.mark.parametrize("implementation", ("sdpa", "matmul"))
def test_no_position_sees_a_later_one(module_of, implementation, monkeypatch):
    module = module_of("ar")
    monkeypatch.setattr(attention, "choose_implementation", lambda device, dtype: implementation)
    x = torch.randint(0, MASK, (2, 9))
    before = module(x)
    for i in range(9):
        changed = x.clone()
        changed[:, i] = (x[:, i] + 1) % MASK
        after = module(changed)
        assert torch.equal(after[:, :i], before[:, :i])
        assert not torch.allclose(after[:, i:], before[:, i:])


def test_the_two_causal_attentions_agree(monkeypatch):
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 7, 2, 4, dtype=torch.float64)
    found = []
    for name in ("sdpa", "matmul"):
        monkeypatch.setattr(attention, "choose_implementation", lambda device, dtype, n=name: n)
        found.append(attention.attend(q, k, v, causal=True))
    torch.testing.assert_close(*found)


def test_untrained_head_is_uniform_over_all_but_the_mask(config_of):
    from lkf_plugin.data.agreetext import agreetext_tokenizer
    from lkf_plugin.runs.common import build_module

    module = build_module(config_of("ar"), agreetext_tokenizer())
    x = torch.randint(0, MASK, (4, 32))
    loss = module._loss(x, torch.ones_like(x)).loss.item()
    assert loss == pytest.approx(math.log(V - 1), abs=1e-6)
    assert module(x)[..., MASK].max() < -1e5


@pytest.mark.parametrize(("start", "predicted"), (("mask", 32), ("data", 31)))
def test_loss_is_the_chain_rule(module_of, start, predicted):
    module = module_of("ar", f"method.start={start}")
    x = torch.randint(0, MASK, (2, 32))
    attention = torch.ones_like(x)
    attention[1, 20:] = 0
    loss = module._loss(x, attention)
    given = torch.cat((torch.full((2, 1), MASK), x), 1) if start == "mask" else x
    nats = torch.zeros(2, predicted, dtype=torch.float64)
    for i in range(predicted):
        logp = module(given[:, : i + 1])[:, -1]
        nats[:, i] = -logp.gather(-1, given[:, i + 1, None]).squeeze(-1)
    counted = attention[:, 32 - predicted :]
    torch.testing.assert_close(loss.nlls, nats * counted)
    torch.testing.assert_close(loss.loss, (nats * counted).sum() / counted.sum())


def test_sampling_costs_a_call_a_token_and_brings_its_likelihood(module_of):
    module = module_of("ar", "decode=best_of_n", "decode.num_candidates=3")
    torch.manual_seed(0)
    x = module._sample()
    decoded = module.last_decoded
    assert x.shape == (4, 32) and int(x.max()) < MASK
    assert decoded.steps_calls == decoded.network_calls == 3 * 32
    nats = module._loss(x, torch.ones_like(x)).nlls.sum(-1)
    torch.testing.assert_close(decoded.score_GC.min(-1).values, nats)

"""Optimizers: which weights go where, and that two in one behave like two."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from lkf_plugin.backbone import build_backbone
from lkf_plugin.errors import UserError
from lkf_plugin.train.muon import Muon
from lkf_plugin.train.optimizer import build_optimizer, is_hidden_matrix
from lkf_plugin.train.schedules import linear_decay

OPTIM = {
    "name": "adamw",
    "lr": 3e-4,
    "muon_lr": 0.02,
    "beta1": 0.9,
    "beta2": 0.95,
    "eps": 1e-8,
    "weight_decay": 0.01,
}
MUON = OPTIM | {"name": "muon"}


def network() -> nn.Module:
    torch.manual_seed(0)
    model = {
        "type": "lkf",
        "trunk": "matched",
        "hidden_size": 8,
        "cond_dim": 4,
        "n_blocks": 2,
        "n_heads": 2,
        "dropout": 0.0,
        "length": 4,
        "num_components": 2,
        "latent_blocks": 1,
        "latent_emb_std": 1.0,
        "latent_film_std": 0.02,
    }
    return build_backbone(model, vocab_size=11, mask_index=10)


def train(net: nn.Module, optimizer: torch.optim.Optimizer, steps: int, first: int = 0) -> None:
    for i in range(first, first + steps):
        torch.manual_seed(i)
        x = torch.randint(10, (3, 4))
        x[:, :2] = 10
        optimizer.zero_grad()
        (-net(x, torch.zeros(3))[:, :2, :10].mean()).backward()
        optimizer.step()


def test_adamw_has_mdlm_settings_and_skips_frozen_weights() -> None:
    net = network()
    frozen = next(net.parameters()).requires_grad_(False)
    optimizer = build_optimizer(net.named_parameters(), OPTIM)
    (group,) = optimizer.param_groups
    assert (group["lr"], group["betas"], group["eps"]) == (3e-4, (0.9, 0.95), 1e-8)
    assert group["weight_decay"] == 0.01
    assert all(weight is not frozen for weight in group["params"])


def test_muon_takes_the_matrices_inside_blocks() -> None:
    net = network()
    optimizer = build_optimizer(net.named_parameters(), MUON)
    names = {id(weight): name for name, weight in net.named_parameters()}
    hidden = {names[id(weight)].split(".", 3)[-1] for weight in optimizer.param_groups[0]["params"]}
    assert hidden == {"attn_qkv.weight", "attn_out.weight", "mlp.0.weight", "mlp.2.weight"}
    both = [weight for group in optimizer.param_groups for weight in group["params"]]
    assert len(both) == len(names) and {id(weight) for weight in both} == names.keys()
    assert [group["lr"] for group in optimizer.param_groups] == [0.02, 3e-4]


def test_one_optimizer_equals_two_side_by_side() -> None:
    mine, theirs = network(), network()
    train(mine, build_optimizer(mine.named_parameters(), MUON), steps=3)
    named = list(theirs.named_parameters())
    hidden = [w for n, w in named if is_hidden_matrix(n, w)]
    others = [w for n, w in named if not is_hidden_matrix(n, w)]
    parts = [
        Muon(hidden, lr=0.02, weight_decay=0.01),
        torch.optim.AdamW(others, lr=3e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.01),
    ]

    class Both:
        def zero_grad(self) -> None:
            theirs.zero_grad()

        def step(self) -> None:
            for part in parts:
                part.step()

    train(theirs, Both(), steps=3)  # type: ignore[arg-type]
    for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(a, b)


def test_muon_resumes_and_follows_a_schedule() -> None:
    net = network()
    optimizer = build_optimizer(net.named_parameters(), MUON)
    schedule = linear_decay(optimizer, total_steps=10, warmup_steps=0, decay_fraction=1.0)
    train(net, optimizer, steps=2)
    schedule.step()
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.018, 2.7e-4])
    weights, state = copy.deepcopy(net.state_dict()), copy.deepcopy(optimizer.state_dict())
    train(net, optimizer, steps=2, first=2)
    resumed = network()
    resumed.load_state_dict(weights)
    again = build_optimizer(resumed.named_parameters(), MUON)
    again.load_state_dict(state)
    train(resumed, again, steps=2, first=2)
    for a, b in zip(net.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b)


def test_muon_needs_hidden_matrices() -> None:
    with pytest.raises(UserError, match="no hidden matrices"):
        build_optimizer([("head.weight", nn.Parameter(torch.ones(2, 2)))], MUON)


def test_unknown_name() -> None:
    with pytest.raises(UserError, match=r"optim\.name=sgd"):
        build_optimizer(network().named_parameters(), OPTIM | {"name": "sgd"})

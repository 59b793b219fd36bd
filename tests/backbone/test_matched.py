"""The matched trunk is MDLM's network."""

from __future__ import annotations

import pytest
import torch

from lkf_plugin.backbone import MatchedTrunk, build_backbone
from tests.golden_arrays import load

PAPER = {
    "type": "lkf",
    "trunk": "matched",
    "hidden_size": 768,
    "cond_dim": 128,
    "n_blocks": 12,
    "n_heads": 12,
    "length": 128,
    "dropout": 0.1,
    "latent_blocks": 4,
    "latent_emb_std": 1.0,
    "latent_film_std": 0.02,
}


def count(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("components", "parameters"), [(1, 139_884_475), (4, 139_887_166), (8, 139_890_754)]
)
def test_parameter_counts_of_the_paper(components, parameters):
    with torch.device("meta"):
        model = build_backbone({**PAPER, "num_components": components}, 30_522, 103)
    assert count(model) == parameters


def test_parameter_count_of_mdlm():
    with torch.device("meta"):
        assert count(build_backbone({**PAPER, "type": "ddit"}, 30_522, 103)) == 139_292_986


def golden_trunk() -> tuple[MatchedTrunk, dict[str, torch.Tensor]]:
    g = load("mdlm/tiny_dit_bert_like_V40.npz")
    trunk = MatchedTrunk(
        40, int(g["hidden"]), int(g["cond_dim"]), int(g["n_blocks"]), int(g["n_heads"]), 0.1
    ).eval()
    trunk.load_state_dict({k[3:]: v for k, v in g.items() if k.startswith("sd/")})
    return trunk, g


def test_mdlm_weights_load_name_for_name_and_give_its_logits():
    trunk, g = golden_trunk()
    with torch.no_grad():
        torch.testing.assert_close(trunk(g["x"], g["sigma"]), g["logits"], rtol=0, atol=5e-7)
        zero = torch.zeros_like(g["sigma"])
        torch.testing.assert_close(trunk(g["x"], zero), g["logits_sigma0"], rtol=0, atol=5e-7)


def test_checkpointed_blocks_give_the_same_gradient():
    trunk, g = golden_trunk()
    trunk.train()
    grads = []
    for flag in (False, True):
        trunk.activation_checkpointing = flag
        torch.manual_seed(0)
        loss = trunk(g["x"], g["sigma"]).square().mean()
        grads.append(torch.autograd.grad(loss, list(trunk.parameters())))
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))

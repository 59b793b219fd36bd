"""The built-in host against arrays that MDLM's unmodified methods made (tests/golden/mdlm)."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from torch import Tensor, nn

from lkf_plugin.corruption import LogLinearNoise
from lkf_plugin.host.builtin import Diffusion
from tests.golden_arrays import DECIDED, SUBS_FILES, ClosestRace, assert_matches, decided, load


class TableNetwork(nn.Module):
    """W[x] + mean over positions of W[x] + P, the network of the golden arrays."""

    def __init__(self, arrays: dict[str, Tensor]) -> None:
        super().__init__()
        self.table = nn.Parameter(arrays["W"])
        self.positions = nn.Parameter(arrays["P"])
        self.calls = 0

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        self.calls += 1
        own = self.table[x]
        return own + own.mean(1, keepdim=True) + self.positions[None, : x.shape[1]]


class TableDiffusion(Diffusion):
    arrays: dict[str, Tensor]

    def _build_backbone(self) -> nn.Module:
        return TableNetwork(self.arrays)


def host(arrays: dict[str, Tensor], **training: Any) -> TableDiffusion:
    options = {
        "antithetic_sampling": True,
        "importance_sampling": False,
        "change_of_variables": False,
        "sampling_eps": 1e-3,
        "ema": 0,
    }
    T = training.pop("T", 0)
    config = OmegaConf.create(
        {
            "parameterization": "subs",
            "T": T,
            "time_conditioning": False,
            "training": options | training,
            "model": {"length": arrays["P"].shape[0]},
            "sampling": {"predictor": "ddpm_cache", "steps": 4, "noise_removal": True},
            "loader": {"eval_batch_size": 3},
        }
    )
    V = arrays["W"].shape[0]
    mask = int(arrays.get("mask_index", torch.tensor(4)))
    tokenizer = SimpleNamespace(vocab_size=V, mask_token="[M]", mask_token_id=mask)
    TableDiffusion.arrays = arrays
    return TableDiffusion(config, tokenizer).eval()


@pytest.fixture(params=SUBS_FILES)
def golden(request: pytest.FixtureRequest) -> Iterator[dict[str, Tensor]]:
    arrays = load(request.param)
    torch.set_default_dtype(arrays["W"].dtype)
    yield arrays
    torch.set_default_dtype(torch.float32)


class Uniforms:
    """Stands in for torch's uniform draws, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *draws: Tensor) -> None:
        self.left = list(draws)
        monkeypatch.setattr(torch, "rand", self.rand)
        monkeypatch.setattr(torch, "rand_like", lambda like: self.rand(*like.shape))

    def rand(self, *shape: int, **kwargs: Any) -> Tensor:
        draw = self.left.pop(0)
        assert tuple(draw.shape) == tuple(shape)
        return draw


def test_time_and_masking_given_the_uniforms(
    golden: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = host(golden)
    Uniforms(monkeypatch, golden["u_t"], golden["u_mask"])
    t = module._sample_t(4, torch.device("cpu"))
    assert_matches(t, golden["t"], "t")
    sigma, dsigma = module.noise(t)
    assert_matches(sigma, golden["sigma"], "sigma")
    assert_matches(dsigma, golden["dsigma"], "dsigma")
    move_chance = 1 - torch.exp(-sigma[:, None])
    assert_matches(move_chance, golden["move_chance"], "move_chance", operand=1.0)
    assert decided(golden["u_mask"], move_chance)
    assert torch.equal(module.q_xt(golden["x0"], move_chance), golden["xt"])


def test_subs(golden: dict[str, Tensor]) -> None:
    module = host(golden)
    logits = module.backbone(golden["xt"], golden["sigma"])
    assert_matches(logits, golden["logits"], "logits")
    log_probs = module.forward(golden["xt"], golden["sigma"][:, None])
    assert_matches(log_probs, golden["log_probs"], "log_probs")


def test_loss(golden: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    module = host(golden)
    Uniforms(monkeypatch, golden["u_t"], golden["u_mask"])
    losses = module._loss(golden["x0"], golden["attention_mask"])
    assert_matches(losses.nlls, golden["nlls"], "nlls")
    assert_matches(losses.loss, golden["loss"], "loss")
    assert torch.equal(losses.token_mask, golden["attention_mask"])


def test_loss_given_the_seed(golden: dict[str, Tensor]) -> None:
    torch.manual_seed(5)
    losses = host(golden)._loss(golden["x0"], golden["attention_mask"])
    assert_matches(losses.loss, golden["loss"], "loss")


@pytest.mark.parametrize("step", range(3))
def test_cached_step_given_the_uniforms(
    golden: dict[str, Tensor], step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = host(golden)
    x, u = golden[f"step{step}_x"], golden[f"step{step}_uniform"]
    Uniforms(monkeypatch, u)
    race = ClosestRace(monkeypatch)
    t = torch.full((x.shape[0], 1), float(golden[f"step{step}_t"]))
    with torch.no_grad():
        _, x_next = module._ddpm_caching_update(x, t, float(golden[f"step{step}_dt"]))
    assert torch.equal(x_next, golden[f"step{step}_x_next"])
    assert race.margin > DECIDED


@pytest.mark.parametrize("J", [1, 4, 8, 64])
def test_trajectories_and_their_network_calls(
    golden: dict[str, Tensor], J: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = host(golden)
    race = ClosestRace(monkeypatch)
    torch.manual_seed(int(golden[f"sample_J{J}_seed"]))
    assert torch.equal(module._sample(num_steps=J), golden[f"sample_J{J}"])
    assert module.backbone.calls == int(golden[f"sample_J{J}_forward_calls"])
    assert race.margin > DECIDED


@pytest.mark.parametrize(
    ("name", "training"),
    [
        ("change_of_variables", {"change_of_variables": True}),
        ("importance", {"importance_sampling": True}),
        ("not_antithetic", {"antithetic_sampling": False}),
        ("T1000", {"T": 1000}),
    ],
)
def test_objective_options(
    name: str, training: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = load("mdlm/objective_options.npz")
    module = host(arrays, **training)
    Uniforms(monkeypatch, arrays["u_t"], arrays["u_mask"])
    losses = module._loss(arrays["x0"], torch.ones(arrays["x0"].shape))
    for quantity in ("nlls", "loss"):
        stored = f"{name}_{quantity}"
        assert_matches(getattr(losses, quantity), arrays[stored], stored)


def test_ddpm_without_cache_draws_the_same_law() -> None:
    """Its first step masks with 0.999 t instead of t; both end without masks."""
    arrays = load("mdlm/subs_mask_inside_f32.npz")
    module = host(arrays)
    module.config.sampling.predictor = "ddpm"
    torch.manual_seed(1)
    x = module._sample(num_steps=8)
    assert module.backbone.calls == 9
    assert not (x == module.mask_index).any()


def test_noise_bounds() -> None:
    noise = LogLinearNoise()
    assert float(noise.sigma_max) == pytest.approx(6.90776825)
    assert float(noise.sigma_min) == pytest.approx(1e-3)


def test_prompt_tokens_are_kept() -> None:
    arrays = load("mdlm/subs_mask_inside_f32.npz")
    module = host(arrays)
    prompt = torch.full((16,), module.mask_index)
    prompt[2:5] = torch.tensor([7, 8, 9])
    module.prompt_ids = prompt
    torch.manual_seed(0)
    x = module._sample(num_steps=4)
    assert torch.equal(x[:, 2:5], torch.tensor([[7, 8, 9]] * 3))
    assert not (x == module.mask_index).any()

"""loss=mdlm with T discrete steps against the closed form, the first step included.

Under SUBS the bound of a masked position at time t is -log p(x) / t (t = 1 / T among them, where
MDLM's second term is 0 / 0 with the limit 0), so a network that gives every word the same chance
has -log p(x) = log(V - 1) everywhere and the loss is a sum over the masks that were drawn.

Shape legend: B sequences, L positions, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from lkf_plugin.host.builtin import Diffusion

V, L, B, MASK = 11, 7, 64, 10


class Even(torch.nn.Module):
    """The same logits everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.logits_V = torch.nn.Parameter(torch.zeros(V))

    def forward(self, x_BL: Tensor, sigma_B: Tensor) -> Tensor:
        return self.logits_V.expand(*x_BL.shape, V)


@pytest.fixture
def module_of() -> Callable[[int], Diffusion]:
    def build(T: int) -> Diffusion:
        training = SimpleNamespace(
            antithetic_sampling=True,
            importance_sampling=False,
            change_of_variables=False,
            sampling_eps=1e-3,
            ema=0,
        )
        config = SimpleNamespace(
            parameterization="subs", T=T, time_conditioning=False, training=training
        )
        tokenizer = SimpleNamespace(mask_token="[MASK]", vocab_size=V, mask_token_id=MASK)
        made: type[Diffusion] = type(
            "EvenDiffusion", (Diffusion,), {"_build_backbone": lambda self: Even()}
        )
        return made(config, tokenizer)

    return build


@pytest.mark.parametrize("T", [1, 2, 10, 100, 1000])
def test_loss_is_the_closed_form(module_of: Callable[[int], Diffusion], T: int) -> None:
    module = module_of(T)
    x0_BL = torch.randint(V - 1, (B, L), generator=torch.Generator().manual_seed(3))
    times: list[Tensor] = []
    noisy: list[Tensor] = []
    inner = module._d3pm_loss

    def spy(log_probs: Tensor, xt: Tensor, x0: Tensor, t: Tensor) -> Tensor:
        times.append(t)
        noisy.append(xt)
        return inner(log_probs, xt, x0, t)

    module._d3pm_loss = spy  # type: ignore[method-assign]
    torch.manual_seed(0)
    loss_BL = module._forward_pass_diffusion(x0_BL)
    t_B, masked_BL = times[0].double(), noisy[0] == MASK
    if T in (2, 10):
        first = torch.isclose(t_B, torch.tensor(1 / T, dtype=torch.float64))
        assert (first[:, None] & masked_BL).any(), "no mask at t = 1 / T was drawn"
    expected_BL = math.log(V - 1) / t_B.clamp(max=1 - 1e-4)[:, None] * masked_BL
    torch.testing.assert_close(loss_BL.double(), expected_BL, rtol=1e-5, atol=1e-7)
    loss_BL.sum().backward()
    (gradient,) = [weight.grad for weight in module.backbone.parameters()]
    assert gradient is not None and gradient.isfinite().all()


def test_first_step_in_expectation(module_of: Callable[[int], Diffusion]) -> None:
    """Over times and masks a token's mean is 0.999 log(V - 1), what continuous time has, too."""
    module = module_of(10)
    torch.manual_seed(1)
    x0_BL = torch.zeros(4000, 20, dtype=torch.long)
    loss = module._forward_pass_diffusion(x0_BL).mean().item()
    assert loss == pytest.approx(0.999 * math.log(V - 1), rel=0.02)

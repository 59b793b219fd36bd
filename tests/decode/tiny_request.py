"""A request to a tiny random model, for tests of policies."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lkf_plugin.corruption import LogLinearNoise
from lkf_plugin.decode.engine import RolloutEngine
from lkf_plugin.decode.network import DecodeNetwork
from lkf_plugin.decode.noise import mix
from lkf_plugin.decode.policy import DecodeRequest
from tests.tiny import tiny_backbone


def tiny_request(
    samples: int = 6,
    steps: int = 4,
    seed: int = 1,
    prompt: Tensor | None = None,
    eps: float = 1e-5,
    **changes: Any,
) -> DecodeRequest:
    """Samples of a float64 model; its prior is unequal, and every component lives."""
    changes = {"scramble": 0.1, **changes}
    net = DecodeNetwork(tiny_backbone(**changes), LogLinearNoise(), lambda s: s.double())
    with torch.no_grad():
        net.backbone.router.out.weight.zero_()
        net.backbone.router.out.bias.copy_(torch.linspace(0.5, -0.5, net.num_components))
    start = torch.full((8,), net.mask_index) if prompt is None else prompt
    return DecodeRequest(
        RolloutEngine(net, steps, eps), start.repeat(samples, 1), mix(seed, torch.arange(samples))
    )

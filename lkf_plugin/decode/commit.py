"""commit: draw one component at the start, hold it for the whole trajectory (commit-M)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lkf_plugin.decode.engine import Rollouts
from lkf_plugin.decode.policy import Decoded, DecodeRequest
from lkf_plugin.errors import UserError


def choose_component(request: DecodeRequest, choice: str | int) -> Tensor:
    """One component a sample, [G].

    ``router`` draws k from w at the start state, ``random`` uniformly, a number takes that one.

    Raises:
        UserError: a component that is not there.
    """
    M = request.engine.network.num_components
    samples, device = request.x_GL.shape[0], request.x_GL.device
    if choice == "router":
        return request.draw_component(request.prior().exp())
    if choice == "random":
        return request.draw_component(torch.ones(samples, M, device=device))
    if isinstance(choice, int) and 0 <= choice < M:
        return torch.full((samples,), choice, device=device)
    raise UserError(
        f"decode.component={choice} must be router, random, or a component from 0 to {M - 1}."
    )


def commit(request: DecodeRequest, settings: Mapping[str, Any]) -> Decoded:
    """One chain a sample, J network calls; ``settings["component"]`` as in ``choose_component``."""
    component_G = choose_component(request, settings["component"])
    samples_G = torch.arange(component_G.numel(), device=component_G.device)
    seeds_G = request.chain_seeds(samples_G, component_G)
    rollouts = Rollouts.start(request.x_GL, component_G, seeds_G)
    request.engine.finish(rollouts)
    calls = rollouts.calls_R.double().mean().item()
    return Decoded(rollouts.x_RL, component_G, None, float(request.engine.num_steps), calls)

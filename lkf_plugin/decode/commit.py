"""commit: draw one component at the start, hold it for the whole trajectory (commit-M)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from lkf_plugin.decode.engine import Rollouts
from lkf_plugin.decode.policy import Decoded, DecodeRequest
from lkf_plugin.errors import UserError


def commit(request: DecodeRequest, settings: Mapping[str, Any]) -> Decoded:
    """One chain a sample at J network calls.

    ``settings.component``: ``router`` draws k from w at the start state, ``random`` uniformly, a
    number takes that component.

    Raises:
        UserError: a component that is not there.
    """
    M = request.engine.network.num_components
    G, device = request.x_GL.shape[0], request.x_GL.device
    choice = settings["component"]
    if M == 1 or choice == "router":
        component_G = request.draw_component(request.prior().exp())
    elif choice == "random":
        component_G = request.draw_component(torch.ones(G, M, device=device))
    elif isinstance(choice, int) and 0 <= choice < M:
        component_G = torch.full((G,), choice, device=device)
    else:
        raise UserError(
            f"decode.component={choice} must be router, random, or a component from 0 to {M - 1}."
        )
    samples_G = torch.arange(G, device=device)
    seeds_G = request.chain_seeds(samples_G, component_G)
    rollouts = Rollouts.start(request.x_GL, component_G, seeds_G)
    request.engine.finish(rollouts)
    calls = rollouts.calls_R.double().mean().item()
    return Decoded(rollouts.x_RL, component_G, None, float(request.engine.num_steps), calls)

"""commit: draw one component at the start, hold it for the whole trajectory (commit-M).

With latents per block it is the sequence latent that is drawn or named; those of the blocks are
drawn under it at the start and held, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lkf_plugin.decode.engine import Rollouts
from lkf_plugin.decode.living_components import living_components
from lkf_plugin.decode.options import DecodeOptions
from lkf_plugin.decode.policy import Decoded, DecodeRequest
from lkf_plugin.decode.registry import policy
from lkf_plugin.errors import UserError


def choose_component(request: DecodeRequest, options: DecodeOptions) -> Tensor:
    """One component per sample, [G].

    ``router`` draws k from w at the start state, ``random`` uniformly among the living, a number
    takes that one.

    Raises:
        UserError: a component that is not there.
    """
    K, choice = request.engine.network.sequence_components, options.component
    if choice == "router":
        return request.draw_component(request.prior().exp())
    if choice == "random":
        return request.draw_component(living_components(request.prior(), options.min_prior))
    if isinstance(choice, int) and 0 <= choice < K:
        return torch.full((request.x_GL.shape[0],), choice, device=request.x_GL.device)
    raise UserError(
        f"decode.component={choice} must be router, random, or a component from 0 to {K - 1}."
    )


def run_committed(request: DecodeRequest, component_G: Tensor) -> Decoded:
    """One chain per sample under the given components, J network calls."""
    samples_G = torch.arange(component_G.numel(), device=component_G.device)
    seeds_G = request.chain_seeds(samples_G, component_G)
    rollouts = Rollouts.start(request.x_GL, component_G, seeds_G)
    request.engine.finish(rollouts)
    calls = rollouts.calls_R.double().mean().item()
    steps = float(request.engine.num_steps)
    return Decoded(rollouts.x_RL, component_G, None, steps, calls, block_GB=rollouts.block_RG)


@policy("commit")
def commit(request: DecodeRequest, settings: Mapping[str, Any]) -> Decoded:
    """One chain per sample, J calls; ``settings["component"]`` as in ``choose_component``."""
    return run_committed(request, choose_component(request, DecodeOptions.read(settings)))

"""redraw: all latents are drawn anew from the router at x_t in every step.

The sampler whose likelihood the redrawn few-step NELBO bounds (``likelihood.few_step``). With one
latent per sequence nothing ties the tokens of different steps but the state itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from lkf_plugin.decode.engine import Rollouts
from lkf_plugin.decode.options import DecodeOptions
from lkf_plugin.decode.policy import Decoded, DecodeRequest
from lkf_plugin.decode.registry import policy


@policy("redraw")
def redraw(request: DecodeRequest, settings: Mapping[str, Any]) -> Decoded:
    """One chain per sample, J calls: the router reads the trunk state that a step has anyway.

    ``component_G`` is the sequence latent of the last step that revealed something.
    """
    DecodeOptions.read(settings)
    every_G = torch.arange(request.x_GL.shape[0], device=request.x_GL.device)
    none_G = torch.zeros_like(every_G)
    rollouts = Rollouts.start(request.x_GL, none_G, request.chain_seeds(every_G, none_G))
    request.engine.finish(rollouts, redraw=True)
    calls = rollouts.calls_R.double().mean().item()
    steps = float(request.engine.num_steps)
    return Decoded(rollouts.x_RL, rollouts.component_R, None, steps, calls)

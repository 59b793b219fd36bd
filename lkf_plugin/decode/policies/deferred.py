"""deferred: the component is free for j steps, then the router's favourite (Tab. deferred)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from lkf_plugin.decode.engine import Rollouts
from lkf_plugin.decode.options import DecodeOptions
from lkf_plugin.decode.policy import Decoded, DecodeRequest
from lkf_plugin.decode.registry import policy


@policy("deferred")
def deferred(request: DecodeRequest, settings: Mapping[str, Any]) -> Decoded:
    """k is drawn from the router anew in each of ``switch_step`` steps, then its argmax is held.

    J calls by the method's own count, since the router reads the trunk state that the step's
    evaluation has anyway. Here it is a pass of its own, which ``network_calls`` counts.
    """
    options, engine = DecodeOptions.read(settings), request.engine
    samples = request.x_GL.shape[0]
    every_G = torch.arange(samples, device=request.x_GL.device)
    favourite_G = request.prior().argmax(-1)
    seed_G = request.chain_seeds(every_G, torch.zeros_like(every_G))
    rollouts = Rollouts.start(request.x_GL, favourite_G, seed_G)
    free_steps = min(options.switch_step, engine.num_steps)
    for j in range(free_steps):
        w_GM = engine.network.prior(rollouts.x_RL, engine.tau[j]).exp()
        rollouts.assign(request.draw_component_at(j, w_GM))
        engine.run_step(rollouts)
    if free_steps:
        logw_GM = engine.network.prior(rollouts.x_RL, engine.tau[free_steps])
        rollouts.assign(logw_GM.argmax(-1))
    engine.finish(rollouts)
    calls = rollouts.calls_R.double().mean().item() + free_steps + 1
    return Decoded(rollouts.x_RL, rollouts.component_R, None, float(engine.num_steps), calls)

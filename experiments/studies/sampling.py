"""Samples of a trained network with its latent frozen, in J steps.

The analytic form goes through the library's rollout engine; the learned form, in which the network
itself decides what is revealed, has a loop of its own.

Shape legend: G samples, L positions, V outcomes.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from lkf_plugin.backbone.latent import LatentKernelBackbone
from lkf_plugin.backbone.trunk import TrunkState
from lkf_plugin.corruption import LogLinearNoise, sigma_from_kept
from lkf_plugin.decode.engine import RolloutEngine, Rollouts
from lkf_plugin.decode.network import DecodeNetwork
from lkf_plugin.decode.noise import mix
from lkf_plugin.decode.policies.best_of_m import best_of_m
from lkf_plugin.decode.policy import Decoded, DecodeRequest


class StepView:
    """A network that knows s, for an engine that only tells t: s is the end of the running step.

    Args:
        backbone: trained by the two-time objective.
        num_steps: J of the engine's grid t_j = j / J; 0 tells s = 1 always.
    """

    def __init__(self, backbone: LatentKernelBackbone, num_steps: int) -> None:
        self.backbone = backbone
        self.num_steps = num_steps

    def __getattr__(self, name: str) -> Any:
        """Everything but ``encode`` is the network's own."""
        return getattr(self.backbone, name)

    def encode(self, x_BL: Tensor, sigma_B: Tensor, *target: Tensor | None) -> TrunkState:
        """The trunk, told of the step's end, or of ``target`` by a caller that gives one.

        Scores give None, the clean end; the engine gives nothing.
        """
        if target:
            return self.backbone.encode(x_BL, sigma_B, target[0])
        t_B = torch.exp(-sigma_B)
        length = 1.0 / self.num_steps if self.num_steps else 1.0
        return self.backbone.encode(x_BL, sigma_B, (t_B + length).clamp_max(1.0))


def request(
    backbone: LatentKernelBackbone, length: int, samples: int, steps: int, seed: int, two_time: bool
) -> DecodeRequest:
    """Samples from nothing on the paper's grid t_j = j / J, ready for a decoding policy."""
    view = StepView(backbone, steps if two_time else 0)
    # told sigma as it is: the studies' networks know the time
    network = DecodeNetwork(
        cast(LatentKernelBackbone, view), LogLinearNoise(eps=0.0), lambda sigma: sigma
    )
    engine = RolloutEngine(network, steps, eps=0.0)
    x_GL = torch.full((samples, length), backbone.mask_index)
    return DecodeRequest(engine, x_GL, mix(seed, torch.arange(samples)))


@torch.no_grad()
def frozen_samples(
    backbone: LatentKernelBackbone,
    length: int,
    samples: int,
    steps: int,
    seed: int = 0,
    form: str = "analytic",
    two_time: bool = True,
    component_G: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Samples [G, L] and the component of each [G].

    Args:
        backbone: in eval mode.
        length, samples, steps: L, G, J.
        seed: of the samples.
        form: law of a masked position (see ``objective.two_time``).
        two_time: whether the network was trained to know s.
        component_G: components to hold; drawn from the router at the start if not given.
    """
    asked = request(backbone, length, samples, steps, seed, two_time)
    if component_G is None:
        component_G = asked.draw_component(asked.prior().exp())
    if form == "learned":
        return _learned(backbone, asked.x_GL, component_G, steps, seed), component_G
    rollouts = Rollouts.start(
        asked.x_GL, component_G, asked.chain_seeds(torch.arange(samples), component_G)
    )
    asked.engine.finish(rollouts)
    return rollouts.x_RL, component_G


def best_of_components(
    backbone: LatentKernelBackbone,
    length: int,
    samples: int,
    steps: int,
    seed: int = 0,
    two_time: bool = True,
) -> Decoded:
    """One chain per component, the lowest NELBO wins; the scores of all are returned."""
    asked = request(backbone, length, samples, steps, seed, two_time)
    settings = {"selector": "nelbo", "score_draws": 4, "shared_noise": False, "min_prior": None}
    return best_of_m(asked, settings)


def _learned(
    backbone: LatentKernelBackbone, x_GL: Tensor, component_G: Tensor, steps: int, seed: int
) -> Tensor:
    """Every mask draws from all V + 1 outcomes; at s = 1, [MASK] is no outcome any more."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.arange(len(x_GL))
    for j in range(steps):
        t_G = torch.full((len(x_GL),), j / steps)
        s_G = torch.full_like(t_G, (j + 1) / steps)
        state = backbone.encode(x_GL, sigma_from_kept(t_G), s_G)
        logits_GLV = backbone.logits(backbone.branch(state, rows, component_G)).double()
        if j == steps - 1:
            logits_GLV[..., backbone.mask_index] = -torch.inf
        prob_NV = torch.softmax(logits_GLV, dim=-1).flatten(0, 1)
        draw_GL = torch.multinomial(prob_NV, 1, generator=generator).view_as(x_GL)
        x_GL = torch.where(x_GL == backbone.mask_index, draw_GL, x_GL)
    return x_GL

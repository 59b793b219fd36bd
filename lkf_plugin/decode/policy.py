"""What a decoding policy is given and what it returns.

A policy is one function ``(request, settings) -> Decoded`` in a file of its own, registered in
``decode/registry.py``; it chooses components, noise sharing and a selector, and leaves the steps
to the engine.

Shape legend: G samples, M components, L positions, C candidates per sample.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from lkf_plugin.decode.engine import RolloutEngine
from lkf_plugin.decode.noise import Stream, mix, uniforms


@dataclass(frozen=True)
class DecodeRequest:
    """Samples to be made.

    Attributes:
        engine: J steps of frozen components.
        x_GL: start states: all masks, or prompts with gaps.
        seed_G: one seed per sample; a sample is a function of its start and seed.
        memory: what outlives one batch (a calibration); share it between batches of one model.
    """

    engine: RolloutEngine
    x_GL: Tensor
    seed_G: Tensor
    memory: dict[Hashable, Tensor] = field(default_factory=dict)

    def chain_seeds(self, sample_R: Tensor, chain_R: Tensor) -> Tensor:
        """Noise seeds of chains ``chain_R`` of samples ``sample_R``, independent streams."""
        return mix(self.seed_G[sample_R], chain_R)

    def prior(self) -> Tensor:
        """log w of each start state, float64 [G, M]."""
        return self.engine.network.prior(self.x_GL)

    def draw_component(self, weight_GM: Tensor, stream: Stream = Stream.COMPONENT) -> Tensor:
        """One component per sample from unnormalised weights, [G]."""
        return self.draw_component_at(0, weight_GM, stream)

    def draw_component_at(
        self, step: int, weight_GM: Tensor, stream: Stream = Stream.COMPONENT
    ) -> Tensor:
        """The same for a draw that is repeated at several steps."""
        cdf_GM = weight_GM.double().cumsum(-1)
        u_G1 = uniforms(self.seed_G, step, 1, stream) * cdf_GM[:, -1:]
        return torch.searchsorted(cdf_GM, u_G1, right=True).squeeze(-1)


@dataclass(frozen=True)
class Decoded:
    """Finished samples and how they came about.

    Attributes:
        x_GL: tokens without masks.
        component_G: component of the delivered chain.
        score_GC: selector's score of each candidate (lower is better, inf where there was none;
            under best_of_m candidate c is component c), or None where nothing was selected.
        steps_calls: network calls per delivered sample by the method's own count (J per chain and
            T per score), the number that tables state.
        network_calls: evaluations that were really run per delivered sample, on average; smaller,
            since a row that reveals nothing in a step is not evaluated. A calibration, which is
            made once per model, is not in it.
        candidates_GCL: the finished candidates that the scores belong to, masks where there was
            none; None where nothing was selected among finished ones.
        facts: what a policy notes on the way, means over the samples.
        block_GB: component of each of B blocks that the delivered chain held; None where blocks
            have no latents of their own, or were given others in each step.
    """

    x_GL: Tensor
    component_G: Tensor
    score_GC: Tensor | None
    steps_calls: float
    network_calls: float
    candidates_GCL: Tensor | None = None
    facts: dict[str, float] = field(default_factory=dict)
    block_GB: Tensor | None = None

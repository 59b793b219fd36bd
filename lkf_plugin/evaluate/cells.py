"""Samples of one cell: a policy, J steps, so many samples from one seed.

Shape legend: S samples, C candidates a sample, L positions.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from tqdm.auto import tqdm

from lkf_plugin.decode.engine import RolloutEngine
from lkf_plugin.decode.noise import mix
from lkf_plugin.decode.options import DecodeOptions
from lkf_plugin.decode.policy import Decoded, DecodeRequest
from lkf_plugin.decode.registry import POLICIES
from lkf_plugin.errors import UserError
from lkf_plugin.runs.load import LoadedRun


@dataclass(frozen=True)
class Samples:
    """What a policy delivered, on the CPU.

    Attributes:
        ids_SL: tokens.
        component_S: component of each delivered chain.
        candidates_SCL, score_SC: the pool that was selected from, None where there was none.
        steps_calls, network_calls: a sample, see ``Decoded``.
        facts: means over the samples.
    """

    ids_SL: Tensor
    component_S: Tensor
    candidates_SCL: Tensor | None
    score_SC: Tensor | None
    steps_calls: float
    network_calls: float
    facts: dict[str, float]


def row_name(settings: Mapping[str, Any]) -> str:
    """Short name of a policy with the choices that set it apart; part of a cell's file name."""
    options = DecodeOptions.read(settings)
    parts: list[str] = [options.policy]
    selects = {
        "best_of_m": True,
        "best_of_n": True,
        "solo": options.num_candidates > 1,
    }.get(options.policy, False)
    if options.policy in ("commit", "best_of_n") and options.component != "router":
        parts.append("random" if options.component == "random" else f"k{options.component}")
    if options.policy == "solo":
        parts.append(f"k{options.component}")
    if selects:
        if options.policy != "best_of_m":
            parts.append(f"n{options.num_candidates}")
        parts.append(options.selector)
        if options.selector in ("softmax", "centred"):
            parts.append(options.score)
        if options.selector == "softmax" and options.select_temperature != 1:
            parts.append(f"theta{options.select_temperature:g}")
    if options.policy == "deferred":
        parts.append(f"j{options.switch_step}")
    if options.policy == "probe":
        parts.append(f"j{options.probe_step}")
    if options.policy == "calibrated":
        parts += [options.score, f"theta{options.select_temperature:g}"]
    if options.shared_noise and options.policy in ("best_of_m", "halving", "probe"):
        parts.append("shared")
    if selects and options.draws not in (0, 4):
        parts.append(f"T{options.draws}")
    if options.temperature != 1:
        parts.append(f"temperature{options.temperature:.4g}")
    return ".".join(parts)


def decode_cell(
    run: LoadedRun,
    settings: Mapping[str, Any],
    num_steps: int,
    num_samples: int,
    seed: int,
    batch_size: int = 64,
    memory: dict[Hashable, Tensor] | None = None,
    progress: bool = True,
) -> Samples:
    """Draws the samples of a cell; sample s is a function of (seed, s), not of the batch size.

    Raises:
        UserError: an unknown policy, or one that is the host's own.
    """
    options = DecodeOptions.read(settings)
    if options.policy not in POLICIES:
        raise UserError(
            f"policy={options.policy} has no cells: take one of {', '.join(POLICIES)} "
            "(commit at M = 1 has MDLM's law)."
        )
    device = next(run.module.backbone.parameters()).device
    network = run.network()
    engine = RolloutEngine(network, num_steps, run.config.sampling.eps, options.temperature)
    start_L = torch.full((run.config.model.length,), network.mask_index, device=device)
    memory = {} if memory is None else memory
    parts: list[Decoded] = []
    starts = range(0, num_samples, batch_size)
    for first in tqdm(
        starts, desc=f"{row_name(settings)} J={num_steps}", unit="batch", leave=False,
        disable=None if progress else True,
    ):  # fmt: skip
        index_G = torch.arange(first, min(first + batch_size, num_samples), device=device)
        request = DecodeRequest(
            engine, start_L.expand(index_G.numel(), -1), mix(seed, index_G), memory
        )
        parts.append(POLICIES[options.policy](request, settings))
    return _joined(parts)


def _joined(parts: list[Decoded]) -> Samples:
    weight = [part.x_GL.shape[0] for part in parts]
    total = sum(weight)

    def mean(values: list[float]) -> float:
        return sum(n * value for n, value in zip(weight, values, strict=True)) / total

    scored = all(part.candidates_GCL is not None for part in parts)
    facts = {key: [part.facts[key] for part in parts] for key in parts[0].facts}
    return Samples(
        torch.cat([part.x_GL for part in parts]).cpu(),
        torch.cat([part.component_G for part in parts]).cpu(),
        torch.cat([p.candidates_GCL for p in parts if p.candidates_GCL is not None]).cpu()
        if scored
        else None,
        torch.cat([p.score_GC for p in parts if p.score_GC is not None]).cpu() if scored else None,
        mean([part.steps_calls for part in parts]),
        mean([part.network_calls for part in parts]),
        {key: mean(values) for key, values in facts.items()},
    )

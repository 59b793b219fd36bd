"""The one way to samples: under main.py, validation, the evaluator, tables and comparisons.

Sample g is a function of (weights, settings, seed, g). Under a decoding policy it has a noise
stream of its own, ``mix(seed, g)``. A host's or method's own sampler draws from torch's global
generators, for a whole batch at once (bit for bit as MDLM does); it is always run for a block of
``BLOCK`` samples with consecutive numbers, and the generators are seeded for each block. So neither
the batch size nor the number of processes, nor the entry point, changes a sample.

Shape legend: G samples, L positions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from lkf_plugin.decode.engine import RolloutEngine
from lkf_plugin.decode.network import DecodeNetwork
from lkf_plugin.decode.noise import mix
from lkf_plugin.decode.policy import Decoded, DecodeRequest
from lkf_plugin.decode.registry import HOST_SAMPLER, POLICIES, read_options
from lkf_plugin.errors import UserError
from lkf_plugin.progress import bar

BLOCK = 8  # samples that an own sampler draws together


class SamplingModel(Protocol):
    """A model as sampling asks it; its weights are taken as they stand, in evaluation mode.

    Policies need a latent-kernel network, which has ``decode_network() -> DecodeNetwork``, too.
    """

    config: Any
    decode_memory: dict[Hashable, Tensor]

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        raise NotImplementedError

    def sampler_of(self, policy: str) -> str:
        """Name of the policy or own sampler that a policy's name stands for (``auto``).

        Raises:
            UserError: the model has no such policy.
        """
        raise NotImplementedError

    def draw_block(self, start_GL: Tensor, settings: Mapping[str, Any], num_steps: int) -> Decoded:
        """By its own sampler, from torch's global generators."""
        raise NotImplementedError


def sample(
    model: SamplingModel,
    start_GL: Tensor,
    settings: Mapping[str, Any],
    seed_G: Tensor,
    num_steps: int,
    eps: float | None = None,
) -> Decoded:
    """Finished samples.

    Args:
        model: what is sampled from; what ``config.sampling`` says beside the steps holds.
        start_GL: start states: all masks, or prompts with gaps.
        settings: as in the Hydra group ``decode``.
        seed_G: one seed per sample. A policy's sample depends on its own; an own sampler's on those
            of all samples of the call.
        num_steps: J.
        eps: MDLM time at which the steps of a policy end; None takes ``config.sampling.eps``.

    Raises:
        UserError: a policy that the model has not, or an unusable setting.
    """
    options = read_options(settings)
    if uses_own_sampler(model, settings):
        with _seeded(int(mix(*seed_G.cpu().unbind())), start_GL.device), torch.no_grad():
            return model.draw_block(start_GL, settings, num_steps)
    eps = float(model.config.sampling.eps if eps is None else eps)
    network: DecodeNetwork = model.decode_network()  # type: ignore[attr-defined]
    engine = RolloutEngine(network, num_steps, eps, options.temperature)
    request = DecodeRequest(engine, start_GL, seed_G, model.decode_memory)
    return POLICIES[model.sampler_of(options.policy)](request, settings)


def sample_numbers(
    model: SamplingModel,
    start_L: Tensor,
    settings: Mapping[str, Any],
    seed: int,
    numbers: range,
    num_steps: int,
    batch_size: int = 64,
    progress: str | None = None,
    pause: Callable[[], None] | None = None,
) -> Decoded:
    """The samples with these numbers, on the CPU.

    Args:
        model: see ``sample``.
        start_L: start state of all of them.
        settings: as in the Hydra group ``decode``.
        seed: of all samples.
        numbers: g of the samples, consecutive; each process takes its own (``share``).
        num_steps: J.
        batch_size: samples decoded at once; no sample depends on it.
        progress: text before a bar over the batches.
        pause: called before each batch; may raise, to stop.

    Raises:
        UserError: see ``sample``.
    """
    if uses_own_sampler(model, settings):
        first = numbers.start // BLOCK * BLOCK
        batches = list(_pieces(range(first, numbers.stop), BLOCK, whole=True))
    else:
        batches = list(_pieces(numbers, batch_size))
    parts = []
    for batch in bar(batches, progress, "batch", shown=progress is not None):
        if pause is not None:
            pause()
        number_G = torch.arange(batch.start, batch.stop, device=start_L.device)
        start_GL = start_L.expand(len(batch), -1)
        decoded = sample(model, start_GL, settings, mix(seed, number_G), num_steps)
        wanted = [g - batch.start for g in batch if g in numbers]
        parts.append(_rows(decoded, slice(wanted[0], wanted[-1] + 1)))
    return joined(parts)


def share(count: int, rank: int, world: int) -> range:
    """Numbers of the samples that one of several processes draws; consecutive."""
    return range(count * rank // world, count * (rank + 1) // world)


def uses_own_sampler(model: SamplingModel, settings: Mapping[str, Any]) -> bool:
    """Whether the host's or the method's own sampler draws, from torch's global generators."""
    policy = model.sampler_of(read_options(settings).policy)
    return policy not in POLICIES or not hasattr(model, "decode_network")


def _pieces(numbers: range, size: int, whole: bool = False) -> Iterator[range]:
    """Consecutive pieces; with ``whole`` the last one is as long as the others."""
    for first in range(numbers.start, numbers.stop, size):
        yield range(first, first + size if whole else min(first + size, numbers.stop))


class _seeded:
    """Global generators seeded for a block; afterwards as they were."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self.seed = seed
        devices = [device] if device.type == "cuda" else []
        self.fork = torch.random.fork_rng(devices=devices)

    def __enter__(self) -> None:
        self.fork.__enter__()
        torch.manual_seed(self.seed)

    def __exit__(self, *error: Any) -> None:
        self.fork.__exit__(*error)


def _rows(decoded: Decoded, rows: slice) -> Decoded:
    """Some samples of a call, on the CPU; counts are those of the call."""

    def cut(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor[rows].cpu()

    return Decoded(
        decoded.x_GL[rows].cpu(),
        decoded.component_G[rows].cpu(),
        cut(decoded.score_GC),
        decoded.steps_calls,
        decoded.network_calls,
        cut(decoded.candidates_GCL),
        decoded.facts,
        cut(decoded.block_GB),
    )


def joined(parts: list[Decoded]) -> Decoded:
    """All samples as one; counts and facts are means over them."""
    weights = [part.x_GL.shape[0] for part in parts]
    total = sum(weights)

    def mean(values: Iterable[float]) -> float:
        return sum(n * value for n, value in zip(weights, values, strict=True)) / total

    def stacked(tensors: list[Tensor | None]) -> Tensor | None:
        known = [one for one in tensors if one is not None]
        return torch.cat(known) if len(known) == len(tensors) else None

    return Decoded(
        torch.cat([part.x_GL for part in parts]),
        torch.cat([part.component_G for part in parts]),
        stacked([part.score_GC for part in parts]),
        mean(part.steps_calls for part in parts),
        mean(part.network_calls for part in parts),
        stacked([part.candidates_GCL for part in parts]),
        {key: mean(part.facts[key] for part in parts) for key in parts[0].facts},
        stacked([part.block_GB for part in parts]),
    )


def own_policy(policy: str, own: str) -> str:
    """What a model without policies understands: its own sampler, or nothing.

    Raises:
        UserError: any other policy.
    """
    if policy in ("auto", HOST_SAMPLER, own):
        return own
    raise UserError(f"policy={policy} needs the latent-kernel network: take {own}.")

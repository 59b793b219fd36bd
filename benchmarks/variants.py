"""What the training benchmarks time: networks, objectives, and the arithmetic they cannot avoid."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from harness import (
    MASK_INDEX,
    Shape,
    Words,
    config_for,
    head_flops,
    layer_flops,
    roughen,
    upstream_class,
)

from lkf_plugin.host.builtin import Diffusion
from lkf_plugin.methods.lkf import bind
from lkf_plugin.objective import two_phase

FLAT, PEAKED = 0.1, 30.0  # scales of the latent embedding
MDLM = "MDLM"
MASK_RATE = 0.5


@dataclass
class Variant:
    """One row of the table."""

    M: int
    overrides: list[str] = field(default_factory=list)
    latent_scale: float = FLAT
    upstream: bool = False
    K: int | None = None  # latents per sequence, where blocks have latents too
    late: bool = False

    def module(self, shape: Shape) -> Any:
        """A Diffusion module ready to train."""
        if self.M == 0:
            config = config_for(shape, ["model=small", "loss=mdlm"])
            cls: Any = Diffusion
            if self.upstream:
                cls, config = upstream_class(config)
        else:
            chosen = ["model=lkf", "loss=mixture", f"model.num_components={self.K or self.M}"]
            latent = f"model.latent_blocks={shape.latent}"
            config = config_for(shape, [*chosen, latent, *self.overrides])
            cls = bind(Diffusion)
        torch.manual_seed(0)
        module = cls(config, Words(shape.vocab))
        roughen(module, self.latent_scale)
        module.train()
        return module


def lkf(
    M: int, backward: str = "dense", head: str = "chunked", peaked: bool = False, **more: Any
) -> Variant:
    overrides = [f"loss.backward={backward}", f"loss.token_head={head}"]
    overrides += [f"loss.{key}={value}" for key, value in more.items()]
    return Variant(M, overrides, PEAKED if peaked else FLAT)


def blocks(
    latent: str, K: int, m: int, length: int, late: bool, peaked: bool = True, drawn: int = 2
) -> Variant:
    """Latents per block, K a sequence by m a block, drawn; ``late`` behind attention."""
    of_blocks = {"latent": latent, "block_components": m, "block_length": length}
    variant = at_site(lkf(K, "drawn", peaked=peaked, drawn=drawn), late)
    more = [f"model.{key}={value}" for key, value in of_blocks.items()]
    return replace(variant, M=K * m, K=K, overrides=[*variant.overrides, *more])


def at_site(variant: Variant, late: bool = True) -> Variant:
    """The same, the latent behind attention."""
    site = "after_attention" if late else "block"
    return replace(variant, late=late, overrides=[*variant.overrides, f"model.latent_site={site}"])


VARIANTS: dict[str, Variant] = {
    MDLM: Variant(0),
    "M=1, MDLM's order": lkf(1, head="mdlm"),
    "M=1, gathered": lkf(1, head="full"),
    "M=1": lkf(1),
    "M=4 naive": lkf(4, head="mdlm"),
    "M=4 dense": lkf(4),
    "M=4 drawn S=2": lkf(4, "drawn"),
    "M=8 naive": lkf(8, head="mdlm"),
    "M=8 dense, gathered": lkf(8, head="full"),
    "M=8 dense, chunked": lkf(8),
    "M=8 two-phase 0, flat": lkf(8, "two_phase"),
    "M=8 two-phase 1e-3, flat": lkf(8, "two_phase", threshold=1e-3),
    "M=8 drawn S=1, flat": lkf(8, "drawn", drawn=1),
    "M=8 drawn S=2, flat": lkf(8, "drawn"),
    "M=8 dense, peaked": lkf(8, peaked=True),
    "M=8 two-phase 0, peaked": lkf(8, "two_phase", peaked=True),
    "M=8 two-phase 1e-3, peaked": lkf(8, "two_phase", peaked=True, threshold=1e-3),
    "M=8 drawn S=2, peaked": lkf(8, "drawn", peaked=True),
    "M=8 keep > 0.5, draw 1, peaked": lkf(8, "drawn", peaked=True, drawn=1, keep_above=0.5),
    "M=8 drawn S=2, flat, late": at_site(lkf(8, "drawn")),
    "M=8 drawn S=2, peaked, late": at_site(lkf(8, "drawn", peaked=True)),
    "tree 4 x 2 over 16": blocks("tree", 4, 2, 16, late=False),
    "tree 4 x 2 over 16, late": blocks("tree", 4, 2, 16, late=True),
    "chain of 8": blocks("chain", 1, 8, 1, late=False),
    "chain of 8, late": blocks("chain", 1, 8, 1, late=True),
    "chain of 8, late, S=1": blocks("chain", 1, 8, 1, late=True, drawn=1),
    "chain of 8, late, flat": blocks("chain", 1, 8, 1, late=True, peaked=False),
}


def batch_for(shape: Shape) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    x0 = torch.randint(MASK_INDEX + 1, shape.vocab, (shape.batch, shape.length))
    return x0, torch.ones(shape.batch, shape.length)


def step(module: Any, shape: Shape) -> Callable[[], None]:
    """One micro-batch: loss and gradient."""
    x0, attention = batch_for(shape)

    def run() -> None:
        module._loss(x0, attention).loss.backward()
        module.zero_grad(set_to_none=True)

    return run


def gamma_entropy(module: Any) -> str:
    entropy = module._extras.get("gamma_entropy") if hasattr(module, "_extras") else None
    return "" if entropy is None else f"{entropy.item():.2f}"


class Kept(NamedTuple):
    """What has a backward pass in a step, in the mean.

    Attributes:
        passes: components per sequence.
        heads: components per position.
    """

    passes: float
    heads: float


@contextlib.contextmanager
def pairs_counted() -> Iterator[list[Kept]]:
    """Collects what each step made inside keeps."""
    kept: list[Kept] = []
    original = two_phase.group_weights

    def counting(
        gamma_BGM: torch.Tensor, plan: two_phase.BackwardPlan, apart: bool = False
    ) -> torch.Tensor:
        weight_BGM = original(gamma_BGM, plan, apart)
        kept_BGM = (weight_BGM > 0).float()
        passes = kept_BGM.amax(1).sum(-1).mean().item()
        kept.append(Kept(passes, kept_BGM.sum(-1).mean().item()))
        return weight_BGM

    two_phase.group_weights = counting
    try:
        yield kept
    finally:
        two_phase.group_weights = original


def pairs_kept(variant: Variant, run: Callable[[], Any]) -> Kept:
    """What has a backward pass, measured in one step (all components of a dense one)."""
    with pairs_counted() as kept:
        run()
    return kept[0] if kept else Kept(variant.M, variant.M)


def counted(variant: Variant, shape: Shape, kept: Kept) -> float:
    """Operations of a step that no implementation of this variant can leave out.

    Args:
        kept: what has a backward pass (``pairs_kept``).
    """
    tokens = shape.batch * shape.length
    layer, head = layer_flops(shape), head_flops(shape)
    if variant.M == 0:
        return tokens * 3 * (shape.blocks * layer + head)
    trunk = 3 * (shape.blocks - shape.latent) * layer
    if variant.M == 1:
        return tokens * (trunk + 3 * shape.latent * layer + 3 * MASK_RATE * head)
    latent, masked = shape.latent * layer, MASK_RATE * head
    scored = 0.0 if "loss.backward=dense" in variant.overrides else variant.M
    if variant.late:
        # attention once, with all MLPs of the stream without a latent but the last
        mlp = 16 * shape.d**2
        trunk += 3 * (shape.latent * layer - mlp)
        place = MASK_RATE * shape.latent * mlp + masked
        return tokens * (trunk + (scored + 3 * kept.heads) * place)
    backward = 3 * (kept.passes * latent + kept.heads * masked)
    return tokens * (trunk + scored * (latent + masked) + backward)

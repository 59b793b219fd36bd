"""What the latent-kernel mixin needs from a host's ``Diffusion``, written down.

Names are MDLM's. A host is a LightningModule class with these members, built as
``Diffusion(config, tokenizer)``; the mixin subclasses it and overrides ``forward``, ``_loss`` and
the sampling methods.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from lkf_plugin.decode.policy import Decoded
from lkf_plugin.objective.draws import HostOfDraws


class Loss(NamedTuple):
    """What ``_loss`` returns (MDLM has a class of this name and these fields).

    Attributes:
        loss: 0-dim, nats per token; the gradient is taken of this.
        nlls: [B, L], what the likelihood metrics add up; zero where nothing is attended.
        token_mask: [B, L], weights of ``nlls``: 1 on attended tokens.
    """

    loss: Tensor
    nlls: Tensor
    token_mask: Tensor


class Ema(Protocol):
    """The weight average: ``store`` and ``copy_to`` around an evaluation, then ``restore``."""

    shadow_params: list[Tensor]  # of the weights that are trained, in their order

    def store(self, parameters: Any) -> None:
        """Puts the weights aside."""
        raise NotImplementedError

    def copy_to(self, parameters: Any) -> None:
        """Writes the averages into the weights."""
        raise NotImplementedError

    def restore(self, parameters: Any) -> None:
        """Brings the weights back."""
        raise NotImplementedError


class HostDiffusion(HostOfDraws, Protocol):
    """A host's Lightning module, also one of an objective's draws.

    The mixin is typed as a subclass of this, so mypy checks its every use of the host, and each
    host's class against it. No body here is ever run, since the host's own stands behind the mixin;
    none is ``raise NotImplementedError``, which would be abstract and not to be called by
    ``super()``.
    """

    config: Any
    tokenizer: Any
    backbone: nn.Module

    training: bool

    def __init__(self, config: Any, tokenizer: Any) -> None:
        raise AssertionError

    @property
    def ema(self) -> Ema | None:
        """The weight average, if there is one."""
        raise AssertionError

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        raise AssertionError

    @property
    def global_rank(self) -> int:
        """Number of this process among all."""
        raise AssertionError

    @property
    def trainer(self) -> Any:
        """Lightning's."""
        raise AssertionError

    def log_dict(self, dictionary: Any, *args: Any, **kwargs: Any) -> None:
        """Lightning's."""
        raise AssertionError

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        """Log-probabilities of the clean token under SUBS, [B, L, V]."""
        raise AssertionError

    def _loss(self, x0: Tensor, attention_mask: Tensor) -> Any:
        """``Loss`` of a batch."""
        raise AssertionError

    def _compute_loss(self, batch: Mapping[str, Tensor], prefix: str) -> Tensor:
        """``_loss`` with its metrics recorded under ``train``, ``val`` or ``test``."""
        raise AssertionError

    def _sample_prior(self, *batch_dims: int) -> Tensor:
        """The state that sampling starts from, all masks, on the CPU."""
        raise AssertionError

    def _sample(self, num_steps: int | None = None, eps: float = 1e-5) -> Tensor:
        """Token ids of new samples, [B, L]."""
        raise AssertionError

    def sampler_of(self, policy: str) -> str:
        """The policy or own sampler that a name stands for, see ``decode.sample``."""
        raise AssertionError

    def draw_block(self, start_GL: Tensor, settings: Mapping[str, Any], num_steps: int) -> Decoded:
        """Samples by the host's own sampler, see ``decode.sample``."""
        raise AssertionError

    def on_validation_epoch_start(self) -> None:
        """Puts the averaged weights in place."""
        raise AssertionError

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


class HostDiffusion(Protocol):
    """A host's Lightning module."""

    config: Any
    tokenizer: Any
    backbone: nn.Module
    noise: Any  # a module: noise(t) -> (sigma, dsigma), with sigma_min and sigma_max
    ema: Ema | None
    mask_index: int  # anywhere in the vocabulary
    vocab_size: int  # the mask included
    parameterization: str
    T: int
    time_conditioning: bool
    antithetic_sampling: bool
    importance_sampling: bool
    change_of_variables: bool
    neg_infinity: float

    training: bool

    def __init__(self, config: Any, tokenizer: Any) -> None:
        raise NotImplementedError

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        raise NotImplementedError

    @property
    def global_rank(self) -> int:
        """Number of this process among all."""
        raise NotImplementedError

    def log_dict(self, dictionary: Any, *args: Any, **kwargs: Any) -> None:
        """Lightning's."""
        raise NotImplementedError

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        """Log-probabilities of the clean token under SUBS, [B, L, V]."""
        raise NotImplementedError

    def _process_sigma(self, sigma: Tensor) -> Tensor:
        """sigma as the network takes it, [B]; zeros without time conditioning."""
        raise NotImplementedError

    def _sample_t(self, n: int, device: torch.device) -> Tensor:
        """``n`` training times, [n]."""
        raise NotImplementedError

    def q_xt(self, x: Tensor, move_chance: Tensor) -> Tensor:
        """Masked copy of ``x``."""
        raise NotImplementedError

    def _loss(self, x0: Tensor, attention_mask: Tensor) -> Any:
        """``Loss`` of a batch."""
        raise NotImplementedError

    def _compute_loss(self, batch: Mapping[str, Tensor], prefix: str) -> Tensor:
        """``_loss`` with its metrics recorded under ``train``, ``val`` or ``test``."""
        raise NotImplementedError

    def _sample_prior(self, *batch_dims: int) -> Tensor:
        """The state that sampling starts from, all masks, on the CPU."""
        raise NotImplementedError

    def _sample(self, num_steps: int | None = None, eps: float = 1e-5) -> Tensor:
        """Token ids of new samples, [B, L]."""
        raise NotImplementedError

    def _ddpm_caching_update(
        self, x: Tensor, t: Tensor, dt: float, p_x0: Any = None
    ) -> tuple[Any, Tensor]:
        """One reverse step: (cache to pass on, next ids)."""
        raise NotImplementedError

    def restore_model_and_sample(self, num_steps: int, eps: float = 1e-5) -> Tensor:
        """``_sample`` with the averaged weights in evaluation mode."""
        raise NotImplementedError

    def compute_generative_perplexity(self, text_samples: list[str]) -> Any:
        """Scores texts with the judge and adds them to the module's record."""
        raise NotImplementedError

    def on_validation_epoch_start(self) -> None:
        """Puts the averaged weights in place."""
        raise NotImplementedError

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Adds the averages."""
        raise NotImplementedError

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Takes them back."""
        raise NotImplementedError

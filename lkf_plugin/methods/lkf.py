"""LKF as one mixin over a host's Diffusion module, MDLM's own or the built-in twin.

It replaces the denoiser's output, the loss and the sampler, and leaves to the host: data, time
draw, noise, masking, EMA, metrics, optimizer, checkpoints. See ``host/contract.py`` for what it
needs of the host.

Shape legend: B sequences, L positions, M components, G samples.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lkf_plugin.backbone.latent import LatentKernelBackbone
from lkf_plugin.backbone.warm_start import start_from
from lkf_plugin.decode.network import DecodeNetwork
from lkf_plugin.decode.noise import mix
from lkf_plugin.decode.policy import Decoded
from lkf_plugin.decode.registry import HOST_SAMPLER, POLICIES, resolve_policy
from lkf_plugin.decode.sample import sample
from lkf_plugin.errors import UserError
from lkf_plugin.host.contract import HostDiffusion, Loss
from lkf_plugin.objective.draws import HostDraws
from lkf_plugin.objective.mixture import Mixture
from lkf_plugin.objective.objective import OBJECTIVES
from lkf_plugin.objective.warm_up import WarmUp

if TYPE_CHECKING:
    _Base = HostDiffusion  # what bind puts behind it has at least that
else:
    _Base = object


class LatentKernelMixin(_Base):
    """Goes in front of a host's Diffusion class: ``class LKF(LatentKernelMixin, Diffusion)``."""

    backbone: LatentKernelBackbone

    def __init__(self, config: Any, tokenizer: Any) -> None:
        super().__init__(config, tokenizer)
        settings, structure = self.config.loss, self.backbone.structure
        self.objective = OBJECTIVES[settings.name](settings, structure)
        # what a validation reports, whatever is trained by
        is_bound = type(self.objective) is Mixture
        self.bound = self.objective if is_bound else Mixture(settings, structure)
        self.policy = self.sampler_of(self.config.decode.policy)
        self.warm_up: WarmUp | None = None  # given by training where init.latents asks for it
        self.prompt_ids: Tensor | None = None
        self.last_decoded: Decoded | None = None
        self._network: DecodeNetwork | None = None
        self.decode_memory: dict[Hashable, Tensor] = {}
        self._extras: Mapping[str, Tensor] = {}
        self._samples_drawn = 0
        source = self.config.init.from_checkpoint
        if source and self.config.mode == "train":
            start_from(self.backbone, source)
            if self.ema:
                live = [p for p in self.backbone.parameters() if p.requires_grad]
                for shadow, parameter in zip(self.ema.shadow_params, live, strict=True):
                    shadow.copy_(parameter.detach())

    # --- denoiser ------------------------------------------------------------------------------

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        """Log-probabilities [B, L, V] of the marginal denoiser under SUBS."""
        if self.backbone.num_components == 1:
            return super().forward(x, sigma)
        return self.backbone(x, self._process_sigma(sigma))

    # --- objective -----------------------------------------------------------------------------

    def _loss(self, x0: Tensor, attention_mask: Tensor) -> Loss:
        """The objective in training; in validation MDLM's NELBO of the marginal denoiser."""
        objective = self.objective if self.training else self.bound
        corruption = objective.corrupt(x0, attention_mask, HostDraws(self))
        if not self.training:
            value = objective.loss(objective.score(self.backbone, corruption), corruption)
            self._extras = value.diagnostics
            return Loss(value.loss, value.nlls_BL, attention_mask)
        warm_up = self.warm_up
        if warm_up is not None and self.trainer.global_step < warm_up.steps:
            value = warm_up.train(self.backbone, corruption)
        else:
            value = objective.train(self.backbone, corruption)
        self._extras = value.diagnostics
        return Loss(value.loss + value.penalty, value.nlls_BL, attention_mask)

    def log_extras(self, prefix: str) -> Mapping[str, Tensor]:
        """Scalars of the latest loss: the mixture objective and whether the latent is alive."""
        return self._extras

    def _compute_loss(self, batch: Mapping[str, Tensor], prefix: str) -> Tensor:
        self._extras = {}
        loss = super()._compute_loss(batch, prefix)
        if self._extras and not hasattr(super(), "log_extras"):
            # MDLM's module knows no extras: log them for it
            training = prefix == "train"
            self.log_dict(
                {f"{prefix}/{name}": value for name, value in self._extras.items()},
                on_step=training,
                on_epoch=not training,
                sync_dist=not training,
                batch_size=batch["input_ids"].shape[0],
            )
        return loss

    # --- sampling ------------------------------------------------------------------------------

    def _sample_prior(self, *batch_dims: int) -> Tensor:
        """All masks, or the prompt's tokens with its gaps."""
        if self.prompt_ids is None:
            return super()._sample_prior(*batch_dims)
        return self.prompt_ids.expand(batch_dims[0], -1).clone()

    @torch.no_grad()
    def _sample(self, num_steps: int | None = None, eps: float | None = None) -> Tensor:
        """The next ``loader.eval_batch_size`` samples [G, L]; details stay in ``last_decoded``.

        At M = 1 MDLM's own, from torch's global generators as they stand. Under a decoding policy
        the samples are numbered on through a validation, each process with its own numbers.

        Args:
            num_steps: J; None takes ``sampling.steps``.
            eps: MDLM time at which the steps end; None takes ``sampling.eps``.
        """
        sampling = self.config.sampling
        num_steps = sampling.steps if num_steps is None else num_steps
        eps = sampling.eps if eps is None else eps
        if self.policy == HOST_SAMPLER:
            return super()._sample(num_steps, eps)
        batch = self.config.loader.eval_batch_size
        x_GL = self._sample_prior(batch, self.config.model.length).to(self.device)
        first = self.global_rank * sampling.num_sample_batches * batch + self._samples_drawn
        self._samples_drawn += batch
        seed_G = mix(self.config.seed, first + torch.arange(batch, device=self.device))
        self.last_decoded = sample(self, x_GL, self.config.decode, seed_G, num_steps, eps)
        return self.last_decoded.x_GL

    def sampler_of(self, policy: str) -> str:
        """``auto`` is MDLM's own sampler at M = 1, and best-of-M beyond."""
        structure = self.backbone.structure
        name = resolve_policy(policy, structure.sequence_components, structure.block_components)
        if name not in POLICIES and name != HOST_SAMPLER:
            raise UserError(f"policy={policy} is unknown: take one of {', '.join(POLICIES)}.")
        return name

    def decode_network(self) -> DecodeNetwork:
        """One for all batches, since a compiled graph is kept in it."""
        if self._network is None:
            mode = self.config.sampling.compile_mode
            self._network = DecodeNetwork(
                self.backbone, self.noise, self._process_sigma, compile_mode=mode
            )
        return self._network

    def on_validation_epoch_start(self) -> None:
        self._samples_drawn = 0  # the same samples' noise at every validation
        self.decode_memory.clear()  # the weights have moved on
        super().on_validation_epoch_start()


def bind(diffusion_class: type[HostDiffusion]) -> type:
    """The host's Diffusion class with LKF in front of it."""
    return type("LKF", (LatentKernelMixin, diffusion_class), {})

"""LKF as one mixin over a host's Diffusion module, MDLM's own or the built-in twin.

It replaces the denoiser's output, the loss and the sampler, and leaves to the host: data, time
draw, noise, masking, EMA, metrics, optimizer, checkpoints. See ``host/contract.py`` for what it
needs of the host.

Shape legend: B sequences, L positions, M components, G samples.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lkf_plugin.backbone.latent import LatentKernelBackbone
from lkf_plugin.backbone.warm_start import start_from_factorised
from lkf_plugin.corruption import draw_two_times, nelbo_weight, reveal_chance, reveal_tokens
from lkf_plugin.decode.engine import RolloutEngine
from lkf_plugin.decode.network import DecodeNetwork
from lkf_plugin.decode.noise import mix
from lkf_plugin.decode.options import DecodeOptions
from lkf_plugin.decode.policy import Decoded, DecodeRequest
from lkf_plugin.decode.registry import HOST_SAMPLER, POLICIES, resolve_policy
from lkf_plugin.host.contract import Loss
from lkf_plugin.kernel import log_mixture, responsibilities, router_regularizer
from lkf_plugin.objective.components import HeadSettings, component_scores
from lkf_plugin.objective.diagnostics import latent_diagnostics
from lkf_plugin.objective.mixture import marginal_nll, mixture_objective
from lkf_plugin.objective.two_phase import BackwardPlan, two_phase_objective
from lkf_plugin.objective.two_time import two_time_scores

if TYPE_CHECKING:
    _Base = Any  # a host's module, see host.contract.HostDiffusion
else:
    _Base = object


@dataclass
class Corruption:
    """One draw of MDLM's forward process.

    Attributes:
        xt_BL: noisy tokens.
        sigma_B: what the network is told.
        weight_B: omega of each sequence.
    """

    xt_BL: Tensor
    sigma_B: Tensor
    weight_B: Tensor


class LatentKernelMixin(_Base):
    """Goes in front of a host's Diffusion class: ``class LKF(LatentKernelMixin, Diffusion)``."""

    backbone: LatentKernelBackbone

    def __init__(self, config: Any, tokenizer: Any) -> None:
        super().__init__(config, tokenizer)
        loss = self.config.loss
        is_mdlm = self.backbone.num_components == 1 and loss.name == "mixture"
        self.head = HeadSettings.resolve(loss.token_head, loss.chunk_rows, is_mdlm)
        self.plan = self._backward_plan()
        self.policy = resolve_policy(self.config.decode.policy, self.backbone.num_components)
        self.prompt_ids: Tensor | None = None
        self.last_decoded: Decoded | None = None
        self._network: DecodeNetwork | None = None
        self._decode_memory: dict[Hashable, Tensor] = {}
        self._extras: dict[str, Tensor] = {}
        self._samples_drawn = 0
        source = self.config.init.from_checkpoint
        if source and self.config.mode == "train":
            start_from_factorised(self.backbone, source)
            if self.ema:
                live = [p for p in self.backbone.parameters() if p.requires_grad]
                for shadow, parameter in zip(self.ema.shadow_params, live, strict=True):
                    shadow.copy_(parameter.detach())

    def _backward_plan(self) -> BackwardPlan | None:
        """None keeps every pair in the graph, or MDLM's order of operations."""
        loss = self.config.loss
        if loss.name != "mixture" or self.head.backend == "mdlm":
            return None
        if self.backbone.num_components == 1:
            return BackwardPlan()  # one component, one pass
        if loss.backward == "dense":
            return None
        if loss.backward == "drawn":
            return BackwardPlan(drawn=loss.drawn, keep_above=loss.keep_above)
        return BackwardPlan(threshold=loss.threshold)

    # --- denoiser ------------------------------------------------------------------------------

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        """Log-probabilities [B, L, V] of the marginal denoiser under SUBS."""
        if self.backbone.num_components == 1:
            return super().forward(x, sigma)
        return self.backbone(x, self._process_sigma(sigma))

    # --- objective -----------------------------------------------------------------------------

    def _corrupt(self, x0_BL: Tensor) -> Corruption:
        """Time, mask and weight as MDLM draws them, random numbers in its order."""
        t_B = self._sample_t(x0_BL.shape[0], x0_BL.device)
        if self.change_of_variables:
            f_0 = torch.log1p(-torch.exp(-self.noise.sigma_min))
            f_T = torch.log1p(-torch.exp(-self.noise.sigma_max))
            told, move_B = t_B, torch.exp(f_0 + t_B * (f_T - f_0))
            weight_B = -f_0.expand_as(t_B)
        else:
            told, dsigma_B = self.noise(t_B)
            move_B = 1 - torch.exp(-told)
            weight_B = nelbo_weight(told, dsigma_B)
            if self.importance_sampling:
                f_0 = torch.log1p(-torch.exp(-self.noise.sigma_min))
                weight_B = -f_0.expand_as(t_B)
        xt_BL = self.q_xt(x0_BL, move_B[:, None])
        return Corruption(xt_BL, self._process_sigma(told[:, None]), weight_B)

    def _loss(self, x0: Tensor, attention_mask: Tensor) -> Loss:
        if self.training and self.config.loss.name == "two_time":
            return self._two_time_loss(x0, attention_mask)
        return self._mixture_loss(x0, attention_mask)

    def _mixture_loss(self, x0_BL: Tensor, attention_mask: Tensor) -> Loss:
        drawn = self._corrupt(x0_BL)
        counted_BL = (drawn.xt_BL == self.mask_index) & (attention_mask > 0)
        args = (self.backbone, drawn.xt_BL, x0_BL, counted_BL, drawn.sigma_B)
        if self.training and self.plan is not None:
            scores, objective = two_phase_objective(*args, drawn.weight_B, self.head, self.plan)
        else:
            scores = component_scores(*args, self.head)
            objective = mixture_objective(scores, drawn.weight_B, counted_BL)
        count = attention_mask.sum()
        loss = objective.total / count
        nlls_BL = marginal_nll(scores, drawn.weight_B, counted_BL).detach()
        if self.backbone.num_components > 1:
            self._extras = latent_diagnostics(scores.logw_BM, objective.gamma_BM)
            self._extras["mixture_nll"] = loss.detach()
            if self.training:
                loss = loss + self._regularizer(scores.logw_BM) * (x0_BL.shape[0] / count)
        return Loss(loss, nlls_BL, attention_mask)

    def _two_time_loss(self, x1_BL: Tensor, attention_mask: Tensor) -> Loss:
        batch, device = x1_BL.shape[0], x1_BL.device
        t_B, s_B = draw_two_times(batch, device, self.config.loss.t_max)
        xt_BL = self.q_xt(x1_BL, 1 - t_B[:, None])
        p_B1 = reveal_chance(t_B, s_B)[:, None]
        xs_BL = reveal_tokens(xt_BL, x1_BL, p_B1, self.mask_index)
        counted_BL = (xt_BL == self.mask_index) & (attention_mask > 0)
        form = self.config.loss.form
        scores = two_time_scores(self.backbone, xt_BL, xs_BL, counted_BL, t_B, s_B, form, self.head)
        ell_BM = scores.logp_BML.sum(-1)
        nll_B = -log_mixture(scores.logw_BM, ell_BM)
        loss = nll_B.mean()
        if self.backbone.num_components > 1:
            gamma_BM = responsibilities(scores.logw_BM, ell_BM).detach()
            self._extras = latent_diagnostics(scores.logw_BM, gamma_BM)
            self._extras["two_time_nll"] = loss.detach()
            loss = loss + self._regularizer(scores.logw_BM)
        tokens_B1 = attention_mask.sum(-1, keepdim=True).clamp_min(1)
        return Loss(loss, nll_B.detach()[:, None] / tokens_B1 * attention_mask, attention_mask)

    def _regularizer(self, logw_BM: Tensor) -> Tensor:
        """R in nats a sequence."""
        loss = self.config.loss
        return router_regularizer(logw_BM, loss.lambda_ent, loss.lambda_lb)

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
        """Samples [G, L] under ``decode.policy``; details stay in ``last_decoded``."""
        sampling = self.config.sampling
        num_steps = num_steps or sampling.steps
        if self.policy == HOST_SAMPLER:
            return super()._sample(num_steps, sampling.eps)
        batch = self.config.loader.eval_batch_size
        x_GL = self._sample_prior(batch, self.config.model.length).to(self.device)
        seed_G = mix(
            self.config.seed,
            self.global_rank,
            self._samples_drawn + torch.arange(batch, device=self.device),
        )
        self._samples_drawn += batch
        network = self._decode_network()
        temperature = DecodeOptions.read(self.config.decode).temperature
        engine = RolloutEngine(network, num_steps, sampling.eps, temperature)
        request = DecodeRequest(engine, x_GL, seed_G, self._decode_memory)
        self.last_decoded = POLICIES[self.policy](request, self.config.decode)
        return self.last_decoded.x_GL

    def _decode_network(self) -> DecodeNetwork:
        """One for all batches, since a compiled graph is kept in it."""
        if self._network is None:
            mode = self.config.sampling.compile_mode
            self._network = DecodeNetwork(
                self.backbone, self.noise, self._process_sigma, compile_mode=mode
            )
        return self._network

    def on_validation_epoch_start(self) -> None:
        self._samples_drawn = 0  # the same samples' noise at every validation
        self._decode_memory.clear()  # the weights have moved on
        super().on_validation_epoch_start()


def bind(diffusion_class: type) -> type:
    """The host's Diffusion class with LKF in front of it."""
    return type("LKF", (LatentKernelMixin, diffusion_class), {})

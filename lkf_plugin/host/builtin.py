"""host=builtin: our twin of MDLM's ``Diffusion`` for SUBS with log-linear noise and a DiT.

Training losses, validation, EMA and samplers agree with MDLM bit for bit where the order of
operations does (the tests hold them to arrays that MDLM made). Beyond MDLM it resumes exactly, its
checkpoints hold tensors and plain numbers only, and it stops before a step that is not finite.

Shapes: B sequences, L positions, V vocabulary. Times are MDLM's: 0 is data, 1 is all masked.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from lkf_plugin.backbone import build_backbone
from lkf_plugin.corruption import (
    LogLinearNoise,
    draw_times,
    log_move_chance,
    mask_tokens,
    move_chance_from_sigma,
    nelbo_weight,
)
from lkf_plugin.decode.policy import Decoded
from lkf_plugin.decode.registry import HOST_SAMPLER
from lkf_plugin.decode.sample import own_policy, sample_numbers, share
from lkf_plugin.errors import UserError
from lkf_plugin.host.ancestral import AncestralSampler
from lkf_plugin.host.contract import HostDiffusion, Loss
from lkf_plugin.judge.judge import Judge, decode_samples
from lkf_plugin.subs import NEG_INFINITY, subs_log_probs
from lkf_plugin.train.metrics import likelihood
from lkf_plugin.train.module import TrainingModule


class Diffusion(AncestralSampler, TrainingModule):
    """Masked diffusion language model.

    Args:
        config: the composed config.
        tokenizer: a Hugging Face tokenizer; without a mask token the mask becomes id V.

    Source: MDLM, Diffusion (same names of attributes and methods).
    """

    noise: LogLinearNoise

    def __init__(self, config: Any, tokenizer: Any) -> None:
        super().__init__(config)
        self.tokenizer = tokenizer
        self.vocab_size, self.mask_index = vocabulary(tokenizer)
        self.parameterization = config.parameterization
        self.T = config.T
        self.time_conditioning = config.time_conditioning
        self.antithetic_sampling = config.training.antithetic_sampling
        self.importance_sampling = config.training.importance_sampling
        self.change_of_variables = config.training.change_of_variables
        self.sampling_eps = config.training.sampling_eps
        self.neg_infinity = NEG_INFINITY
        self.prompt_ids: Tensor | None = None
        self.decode_memory: dict[Hashable, Tensor] = {}
        self.noise = LogLinearNoise()
        self.backbone = self._build_backbone()
        self._start_average()
        self._judge: Judge | None = None
        self._judged = [0.0, 0]  # nats and tokens that the judge has counted

    def _build_backbone(self) -> nn.Module:
        return build_backbone(self.config.model, self.vocab_size, self.mask_index)

    # --- denoiser ------------------------------------------------------------------------------

    def _process_sigma(self, sigma: Tensor) -> Tensor:
        sigma_B = sigma.squeeze(-1) if sigma.ndim > 1 else sigma
        assert sigma_B.ndim == 1, sigma.shape
        return sigma_B if self.time_conditioning else torch.zeros_like(sigma_B)

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        """Log-probabilities of the clean token, [B, L, V], in float32 or better.

        Args:
            x: [B, L] ids.
            sigma: [B] or [B, 1] noise level.
        """
        logits = self.backbone(x, self._process_sigma(sigma))
        return subs_log_probs(logits, x, self.mask_index)

    # --- loss ----------------------------------------------------------------------------------

    def _sample_t(self, n: int, device: torch.device) -> Tensor:
        t_B = draw_times(n, device, self.antithetic_sampling, self.sampling_eps)
        if self.importance_sampling:
            return self.noise.importance_times(t_B)
        return t_B

    def q_xt(self, x: Tensor, move_chance: Tensor) -> Tensor:
        """Masks each token with chance ``move_chance`` (broadcast)."""
        return mask_tokens(x, move_chance, self.mask_index)

    def _forward_pass_diffusion(self, x0: Tensor) -> Tensor:
        """Negative log-likelihood bound per position, [B, L], in nats."""
        t = self._sample_t(x0.shape[0], x0.device)
        if self.T > 0:
            t = (t * self.T).to(torch.int) / self.T + 1 / self.T
        if self.change_of_variables:
            low, high = (log_move_chance(s) for s in (self.noise.sigma_min, self.noise.sigma_max))
            sigma, dsigma = t, None
            move_chance = torch.exp(low + t * (high - low))
        else:
            sigma, dsigma = self.noise(t)
            move_chance = move_chance_from_sigma(sigma)
        xt = self.q_xt(x0, move_chance[:, None])
        log_probs = self.forward(xt, sigma[:, None])
        if self.T > 0:
            return self._d3pm_loss(log_probs, xt, x0, t)
        logp = log_probs.gather(-1, x0[..., None]).squeeze(-1)
        if self.change_of_variables or self.importance_sampling:
            return logp * log_move_chance(self.noise.sigma_min).to(logp)
        assert dsigma is not None
        return -logp * nelbo_weight(sigma, dsigma)[:, None]

    def _d3pm_loss(self, log_probs: Tensor, xt: Tensor, x0: Tensor, t: Tensor) -> Tensor:
        """Bound for T discrete steps, [B, L] (MDLM, Diffusion._d3pm_loss)."""
        dt = 1 / self.T
        t_B1 = t[:, None].clamp(0.0, 1.0 - 1e-4)
        s_B1 = t_B1 - dt
        zeros = torch.zeros_like(xt)
        keep_t, keep_s = 1 - t_B1 + zeros, 1 - s_B1 + zeros
        logp = log_probs.gather(-1, x0[..., None]).squeeze(-1)
        p_mask = log_probs[..., self.mask_index].exp()
        log_t = torch.log(keep_t * p_mask / t_B1 + 1)
        # At t = 1 / T the later time is 0 and the second term 0 / 0; its limit there is 0.
        later_B1 = s_B1 > 0
        log_s = torch.log(keep_s * p_mask / torch.where(later_B1, s_B1, 1.0) + 1)
        second = torch.where(later_B1, (1 - dt / t_B1) * (log_t - log_s), 0.0)
        bound = dt / t_B1 * (log_t - logp) + second
        return self.T * (bound * (xt == self.mask_index))

    def _loss(self, x0: Tensor, attention_mask: Tensor) -> Loss:
        """Loss of a batch; the sum runs over attended tokens and is divided by their number."""
        nlls = self._forward_pass_diffusion(x0) * attention_mask
        return Loss(nlls.sum() / attention_mask.sum(), nlls, attention_mask)

    def _compute_loss(self, batch: Mapping[str, Tensor], prefix: str) -> Tensor:
        losses = self._loss(batch["input_ids"], batch["attention_mask"])
        if prefix != "train":
            weights = losses.token_mask.double()
            nats = (losses.nlls.detach().double() * weights).sum()
            self.valid_means.add("nll", nats, weights.sum())
            extras = self.log_extras(prefix)
            self.valid_means.add_extras(extras, batch["input_ids"].shape[0], nats.device)
        return losses.loss

    def training_facts(self) -> dict[str, Any]:
        """What records say of the training, beside its settings."""
        return {}

    # --- sampling ------------------------------------------------------------------------------

    def _after_validation(self) -> None:
        """Draws samples if ``eval.generate_samples`` asks for them, and writes the last few."""
        sanity = self.trainer.sanity_checking and not self.config.eval.compute_perplexity_on_sanity
        if sanity or not self.config.eval.generate_samples:
            return
        config, world = self.config, self.trainer.world_size
        batch = config.loader.eval_batch_size
        count = config.sampling.num_sample_batches * batch * world
        start_L = self._sample_prior(1, config.model.length)[0].to(self.device)
        numbers = share(count, self.global_rank, world)
        drawn = sample_numbers(
            self, start_L, config.decode, config.seed, numbers, config.sampling.steps, batch,
            pause=self.pause,
        )  # fmt: skip
        texts = decode_samples(self.tokenizer, drawn.x_GL)
        self._judged = [0.0, 0]
        if self.config.eval.compute_generative_perplexity:
            self.compute_generative_perplexity(texts)
            self.log("val/gen_ppl", self.generative_perplexity(), sync_dist=True)
        if self.trainer.is_global_zero:
            path = Path(self.config.run_dir) / "samples" / f"step-{self.trainer.global_step}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            kept = texts[: self.config.sampling.num_sample_log]
            path.write_text("\n\n".join(kept) + "\n", encoding="utf-8")

    def sampler_of(self, policy: str) -> str:
        """MDLM's sampler, which is the only one without components."""
        return own_policy(policy, HOST_SAMPLER)

    def draw_block(self, start_GL: Tensor, settings: Mapping[str, Any], num_steps: int) -> Decoded:
        """Samples by MDLM's sampler, from torch's global generators."""
        x_GL = self.reverse(start_GL, num_steps, self.config.sampling.eps)
        component_G = torch.zeros(len(x_GL), dtype=torch.int64, device=x_GL.device)
        return Decoded(x_GL, component_G, None, float(num_steps), float(num_steps))

    def restore_model_and_sample(self, num_steps: int, eps: float = 1e-5) -> Tensor:
        """Samples [B, L] from the averaged weights in evaluation mode."""
        was_training = self.backbone.training
        self._enter_ema()
        try:
            return self._sample(num_steps=num_steps, eps=eps)
        finally:
            self._leave_ema()
            self.backbone.train(was_training)

    def restore_model_and_semi_ar_sample(self, *args: Any, **kwargs: Any) -> Any:
        """Not in this host.

        Raises:
            UserError: always.
        """
        raise UserError("sampling.semi_ar is not in the built-in host: take host=mdlm.")

    def take_judge(self, judge: Judge | None) -> None:
        """The judge of ``eval.compute_generative_perplexity``, loaded before training began."""
        self._judge = judge

    def compute_generative_perplexity(self, text_samples: list[str]) -> Any:
        """Scores texts with ``eval.gen_ppl_eval_model_name_or_path`` and adds them to the total."""
        evaluation = self.config.eval
        if self._judge is None:
            self._judge = Judge(evaluation.gen_ppl_eval_model_name_or_path, device=self.device)
        if self._judge.device != self.device:
            self._judge.device = self.device
            self._judge.model.to(self.device)
        score = self._judge.score(
            text_samples,
            max_length=self.config.model.length,
            batch_size=evaluation.perplexity_batch_size,
        )
        self._judged[0] += score.nll
        self._judged[1] += score.tokens
        return score

    def generative_perplexity(self) -> float:
        """Perplexity of all texts scored so far."""
        nats, tokens = self._judged
        return likelihood(nats / max(tokens, 1))["ppl"]


if TYPE_CHECKING:
    _HOST: type[HostDiffusion] = Diffusion  # mypy holds it to the contract


def vocabulary(tokenizer: Any) -> tuple[int, int]:
    """(V with the mask, id of the mask), by MDLM's rule.

    A tokenizer without a mask token gets one appended: id ``tokenizer.vocab_size``.
    """
    if getattr(tokenizer, "mask_token", None) is None:
        return tokenizer.vocab_size + 1, tokenizer.vocab_size
    return tokenizer.vocab_size, tokenizer.mask_token_id

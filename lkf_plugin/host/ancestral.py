"""MDLM's reverse samplers for masked diffusion with a log-linear schedule, in float32.

The random draws come in MDLM's order and the arithmetic is MDLM's, so a seed gives its samples.
Shapes: B sequences, L positions, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lkf_plugin.corruption import move_chance_from_sigma
from lkf_plugin.errors import UserError

PREDICTORS = ("ddpm_cache", "ddpm")


def sample_categorical(weights: Tensor) -> Tensor:
    """One draw per row from unnormalised ``weights`` [..., V]: a race of exponentials.

    Rare tokens are under-drawn in float32, because the uniform cannot be close enough to 1.
    Source: MDLM, _sample_categorical.
    """
    exponential = 1e-10 - torch.log(torch.rand_like(weights) + 1e-10)
    return torch.argmax(weights / exponential, dim=-1)


class AncestralSampler:
    """Sampling methods of a ``Diffusion`` (see ``host.contract``)."""

    config: Any
    backbone: nn.Module
    noise: nn.Module
    mask_index: int
    time_conditioning: bool
    device: torch.device
    prompt_ids: Tensor | None

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        """Log-probabilities under SUBS (the module's own)."""
        raise NotImplementedError

    def _sample_prior(self, *batch_dims: int) -> Tensor:
        """All masks, or the prompt with its gaps."""
        x = torch.full(batch_dims, self.mask_index, dtype=torch.int64)
        if self.prompt_ids is not None:
            x[...] = self.prompt_ids
        return x

    def _reveal(self, x: Tensor, p_x0: Tensor, stay_t: Tensor, stay_s: Tensor) -> Tensor:
        """Draws for masked positions: a token, or the mask with weight ``stay_s`` [B, 1, 1]."""
        weights = p_x0 * (stay_t - stay_s)
        weights[:, :, self.mask_index] = stay_s[:, :, 0]
        drawn = sample_categorical(weights)
        return torch.where(x == self.mask_index, drawn, x)

    def _ddpm_caching_update(
        self, x: Tensor, t: Tensor, dt: float, p_x0: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """One step from time ``t`` to ``t - dt``.

        Args:
            x: [B, L] ids.
            t: [B] or [B, 1]; here, unlike in training, the chance of being masked is t itself.
            dt: step.
            p_x0: denoiser at ``x`` if it is known.

        Returns:
            (denoiser at ``x``, [B, L] next ids).
        """
        t_B = t.flatten()
        if p_x0 is None:
            p_x0 = self.forward(x, self.noise(t)[0]).exp()
        return p_x0, self._reveal(x, p_x0, t_B[:, None, None], (t_B - dt)[:, None, None])

    def _ddpm_update(self, x: Tensor, t: Tensor, dt: float) -> Tensor:
        """One step without a cache; the chance of being masked is 1 - exp(-sigma)."""
        sigma_t, sigma_s = (self.noise(time)[0].flatten() for time in (t, t - dt))
        stay_t, stay_s = (move_chance_from_sigma(s)[:, None, None] for s in (sigma_t, sigma_s))
        return self._reveal(x, self.forward(x, sigma_t).exp(), stay_t, stay_s)

    @torch.no_grad()
    def _sample(self, num_steps: int | None = None, eps: float = 1e-5) -> Tensor:
        """``loader.eval_batch_size`` new sequences, [B, L]; J is ``sampling.steps`` by default."""
        steps = self.config.sampling.steps if num_steps is None else num_steps
        x = self._sample_prior(self.config.loader.eval_batch_size, self.config.model.length)
        return self.reverse(x.to(self.device), steps, eps)

    @torch.no_grad()
    def reverse(self, x: Tensor, steps: int, eps: float) -> Tensor:
        """``x`` [B, L] with its masks filled, by ``sampling.predictor``.

        Args:
            x: all masks, or prompts with gaps.
            steps: J.
            eps: time at which the steps end; what is masked then is filled greedily at once
                (with ``sampling.noise_removal``).

        Raises:
            UserError: a predictor of MDLM's that is not in this host.
        """
        sampling = self.config.sampling
        if sampling.predictor not in PREDICTORS:
            raise UserError(
                f"sampling.predictor={sampling.predictor} is not in the built-in host: "
                "take ddpm_cache or ddpm, or host=mdlm."
            )
        times = torch.linspace(1, eps, steps + 1, device=self.device)
        dt = (1 - eps) / steps
        ones_B1 = torch.ones(x.shape[0], 1, device=self.device)
        cache = None
        for i in range(steps):
            t_B1 = times[i] * ones_B1
            if sampling.predictor == "ddpm":
                x = self._ddpm_update(x, t_B1, dt)
                continue
            cache, x_next = self._ddpm_caching_update(x, t_B1, dt, p_x0=cache)
            if self.time_conditioning or not torch.equal(x_next, x):
                cache = None
            x = x_next
        if sampling.noise_removal:
            x = self.forward(x, self.noise(times[-1] * ones_B1)[0]).argmax(dim=-1)
        return x

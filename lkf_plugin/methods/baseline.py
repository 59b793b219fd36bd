"""What every baseline shares: own sampler or best of n, counted calls, likelihood with its error.

Shape legend: B sequences, G samples, C candidates per sample, L positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lkf_plugin.checkpoint_file import read_checkpoint
from lkf_plugin.decode.options import DecodeOptions
from lkf_plugin.decode.policy import Decoded
from lkf_plugin.decode.sample import own_policy
from lkf_plugin.errors import UserError
from lkf_plugin.host.ancestral import sample_categorical
from lkf_plugin.host.builtin import Diffusion
from lkf_plugin.host.contract import Loss
from lkf_plugin.methods.denoiser import Denoiser, build_denoiser
from lkf_plugin.train.ema import ExponentialMovingAverage
from lkf_plugin.train.spread import Spread

BEST_OF_N = "best_of_n"


class Chains(NamedTuple):
    """Finished chains.

    Attributes:
        x_GL: tokens.
        nll_G: exact negative log-likelihood in nats where the sampler knows it, else None.
    """

    x_GL: Tensor
    nll_G: Tensor | None = None


class Baseline(Diffusion):
    """A method beside LKF on the built-in host.

    Subclasses override the network or what its output means, ``_loss`` or ``token_nll``,
    ``draw_chains`` and the score of finished candidates.
    """

    def __init__(self, config: Any, tokenizer: Any) -> None:
        super().__init__(config, tokenizer)
        self.settings = self.config.method
        self.last_decoded: Decoded | None = None
        self.calls = 0  # evaluations of the network for a batch
        self.spread = Spread()
        self._latest: Loss | None = None
        source = self.config.init.from_checkpoint
        if source and self.config.mode == "train":
            self._start_from(source)

    def _start_from(self, source: str) -> None:
        """Weights of another run or of an import; their average where there is one."""
        checkpoint = read_checkpoint(source)
        try:
            self.load_state_dict(checkpoint["state_dict"])
        except RuntimeError as error:
            raise UserError(
                f"init.from_checkpoint={source} holds another network than the model settings "
                "describe: give the data and model settings of its run."
            ) from error
        if "ema" in checkpoint:
            average = ExponentialMovingAverage(self._weights(), 0.0)
            average.load_state_dict(checkpoint["ema"])
            average.copy_to(self._weights())
        self._start_average()

    def _build_backbone(self) -> nn.Module:
        return build_denoiser(self.config.model, self.vocab_size)

    def draw(self, weights: Tensor) -> Tensor:
        """One categorical draw per row from unnormalised weights [..., V]."""
        return sample_categorical(weights.double() if self.settings.float64_draws else weights)

    # --- likelihood ----------------------------------------------------------------------------

    def _loss(self, x0: Tensor, attention_mask: Tensor) -> Loss:
        self._latest = super()._loss(x0, attention_mask)
        return self._latest

    def _compute_loss(self, batch: Mapping[str, Tensor], prefix: str) -> Tensor:
        loss = super()._compute_loss(batch, prefix)
        latest = self._latest
        if prefix != "train" and latest is not None:
            weights = latest.token_mask.double()
            nats_B = (latest.nlls.detach().double() * weights).sum(-1)
            self.spread.add(nats_B, weights.sum(-1))
        self._latest = None
        return loss

    def on_validation_epoch_start(self) -> None:
        """Averaged weights, and a fresh standard error."""
        self.spread.reset()
        super().on_validation_epoch_start()

    def on_validation_epoch_end(self) -> None:
        """Logs ``val/nll_se`` beside ``val/nll``, nats per token."""
        error = self.spread.standard_error()
        if error is not None:
            self.log("val/nll_se", error)
        super().on_validation_epoch_end()

    # --- sampling ------------------------------------------------------------------------------

    def draw_chains(self, start_GL: Tensor, num_steps: int, eps: float) -> Chains:
        """New sequences by the method's own sampler, from all masks or prompts with gaps."""
        raise NotImplementedError

    def method_steps(self, num_steps: int) -> int:
        """Network calls per chain by the method's own count, which tables state."""
        return num_steps

    def score(self, x_CGL: Tensor, draws: int) -> Tensor:
        """Scores of finished candidates in nats per sequence, float64 [G, C]; lower is better.

        Args:
            x_CGL: C candidates of each of G samples; a sample's candidates share their noise.
            draws: T, network calls per candidate.
        """
        raise NotImplementedError

    @torch.no_grad()
    def _sample(self, num_steps: int | None = None, eps: float = 1e-5) -> Tensor:
        """``loader.eval_batch_size`` samples [G, L]; details stay in ``last_decoded``."""
        steps = self.config.sampling.steps if num_steps is None else num_steps
        start = self._sample_prior(self.config.loader.eval_batch_size, self.config.model.length)
        self.last_decoded = self.draw_block(start.to(self.device), self.config.decode, steps)
        return self.last_decoded.x_GL

    def sampler_of(self, policy: str) -> str:
        """Its own sampler, or ``best_of_n`` of its chains."""
        return policy if policy == BEST_OF_N else own_policy(policy, self.settings.name)

    def draw_block(self, start_GL: Tensor, settings: Mapping[str, Any], num_steps: int) -> Decoded:
        """Samples from torch's global generators, the best of several chains if asked to."""
        options, eps, before = DecodeOptions.read(settings), self.config.sampling.eps, self.calls
        if options.policy == BEST_OF_N:
            count = options.num_candidates
            chains = [self.draw_chains(start_GL, num_steps, eps) for _ in range(count)]
            x_GL, score_GC, scoring = self._best(chains, options.score_draws)
        else:
            x_GL = self.draw_chains(start_GL, num_steps, eps).x_GL
            score_GC, scoring, count = None, 0, 1
        return Decoded(
            x_GL,
            torch.zeros(len(x_GL), dtype=torch.int64, device=x_GL.device),
            score_GC,
            float(count * (self.method_steps(num_steps) + scoring)),
            float(self.calls - before),
        )

    def _best(self, chains: list[Chains], draws: int) -> tuple[Tensor, Tensor, int]:
        """(winners, scores [G, C], network calls that a score cost)."""
        x_CGL = torch.stack([chain.x_GL for chain in chains])
        exact = [chain.nll_G for chain in chains if chain.nll_G is not None]
        if exact:
            score_GC, draws = torch.stack(exact, dim=-1), 0
        else:
            score_GC = self.score(x_CGL, draws)
        winner_G = score_GC.argmin(-1)  # the first of equals
        rows_G = torch.arange(winner_G.numel(), device=winner_G.device)
        return x_CGL[winner_G, rows_G], score_GC, draws


class DiffusionBaseline(Baseline):
    """A baseline that corrupts a text at a time t and bounds its likelihood by what it then sees.

    Its corruption is a function of one uniform and one uniform id per position, so that candidates
    can be scored under equal noise.
    """

    backbone: Denoiser

    def signal(self, t_B: Tensor) -> tuple[Tensor, Tensor]:
        """(alpha, d alpha / dt) at MDLM time ``t``."""
        sigma_B, dsigma_B = self.noise(t_B)
        alpha_B = torch.exp(-sigma_B)
        return alpha_B, -dsigma_B * alpha_B

    def draw_noise(self, x: Tensor) -> tuple[Tensor, ...]:
        """Random numbers that ``corrupt`` needs for a batch like ``x`` [B, L]."""
        return (torch.rand(x.shape, device=x.device),)

    def corrupt(self, x0: Tensor, t_B: Tensor, noise: tuple[Tensor, ...]) -> Tensor:
        """Noisy tokens at time ``t``: masks, unless the method has other noise."""
        move_B = 1 - self.signal(t_B)[0]
        return torch.where(noise[0] < move_B[:, None], self.mask_index, x0)

    def token_nll(self, x0: Tensor, xt: Tensor, t_B: Tensor) -> Tensor:
        """Integrand of the method's NELBO at time ``t``, nats, [B, L]."""
        raise NotImplementedError

    def _forward_pass_diffusion(self, x0: Tensor) -> Tensor:
        t_B = self._sample_t(x0.shape[0], x0.device)
        return self.token_nll(x0, self.corrupt(x0, t_B, self.draw_noise(x0)), t_B)

    def score(self, x_CGL: Tensor, draws: int) -> Tensor:
        """Monte Carlo NELBO of whole sequences over ``draws`` stratified times."""
        candidates, samples, _ = x_CGL.shape
        score_GC = torch.zeros(samples, candidates, dtype=torch.float64, device=x_CGL.device)
        least = self.sampling_eps
        prompt = self.prompt_ids
        free_L = None if prompt is None else (prompt == self.mask_index).to(x_CGL.device)
        for draw in range(draws):
            u_G = (draw + torch.rand(samples, device=x_CGL.device)) / draws
            t_G = least + (1 - least) * u_G
            noise = self.draw_noise(x_CGL[0])
            for c, x_GL in enumerate(x_CGL):
                xt_GL = self.corrupt(x_GL, t_G, noise)
                if free_L is not None:
                    xt_GL = torch.where(free_L, xt_GL, x_GL)  # a prompt is never noisy
                nll_GL = self.token_nll(x_GL, xt_GL, t_G).double()
                score_GC[:, c] += nll_GL.sum(-1) / draws
        return score_GC

"""DUO: uniform-state diffusion whose training begins with soft tokens.

All V ids take part in the noise, the mask's included, which no text holds.
"""

from __future__ import annotations

from typing import Annotated, Any

import torch
from torch import Tensor

from lkf_plugin.backbone.trunk import TrunkState
from lkf_plugin.errors import UserError
from lkf_plugin.methods.baseline import Chains, DiffusionBaseline
from lkf_plugin.methods.denoiser import by_rows, encode, encode_soft
from lkf_plugin.methods.duo_curriculum import Curriculum, gamma_of_signal
from lkf_plugin.methods.duo_latent import SoftTokens, dense_latent, top_latent
from lkf_plugin.methods.duo_math import diffuse, nelbo_integrand
from lkf_plugin.methods.duo_sampler import run_chain
from lkf_plugin.methods.method import METHODS, UNIFORM, DrawingSettings, Method
from lkf_plugin.settings.fields import Choice, Count, Group, Number, Real, Whole
from lkf_plugin.subs import at_least_float32

SIGNAL_RANGE = (0.95, 0.05)  # of the curriculum where no range of gamma is given
TAIL_WEIGHS_NOTHING = -2.0  # log10 tau up to which the largest columns are all that count


class DUO(DiffusionBaseline):
    """Discrete diffusion duality."""

    def __init__(self, config: Any, tokenizer: Any) -> None:
        super().__init__(config, tokenizer)
        self.curriculum = self._read_curriculum()

    def _read_curriculum(self) -> Curriculum:
        given = self.settings.curriculum
        ends = [
            gamma if gamma is not None else gamma_of_signal(alpha, self.vocab_size)
            for gamma, alpha in zip((given.gamma_min, given.gamma_max), SIGNAL_RANGE, strict=True)
        ]
        taus = (given.tau_log10_start, given.tau_log10_end)
        return Curriculum(given.start, given.end, *taus, *ends)

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        """Log-probabilities of the clean token over all ids, [B, L, V]."""
        self.calls += 1
        logits = self.backbone(x, self._process_sigma(sigma))
        return torch.log_softmax(at_least_float32(logits), dim=-1)

    # --- likelihood ----------------------------------------------------------------------------

    def draw_noise(self, x: Tensor) -> tuple[Tensor, ...]:
        """A uniform and a uniform id per position."""
        return (*super().draw_noise(x), torch.randint_like(x, self.vocab_size))

    def corrupt(self, x0: Tensor, t_B: Tensor, noise: tuple[Tensor, ...]) -> Tensor:
        """Uniform ids in place of some tokens."""
        return diffuse(x0, self.signal(t_B)[0], *noise)

    def token_nll(self, x0: Tensor, xt: Tensor, t_B: Tensor) -> Tensor:
        """DUO's integrand at every position."""
        self.calls += 1
        alpha_B, dalpha_B = self.signal(t_B)
        sigma_B = self._process_sigma(-torch.log(alpha_B))
        state = encode(self.backbone, xt, sigma_B)
        return self._integrand(state, x0, xt, alpha_B, dalpha_B)

    def _integrand(
        self, state: TrunkState, x0: Tensor, xt: Tensor, alpha_B: Tensor, dalpha_B: Tensor
    ) -> Tensor:
        def of_rows(logits_NK: Tensor, *columns: Tensor) -> Tensor:
            logp_NK = torch.log_softmax(at_least_float32(logits_NK), dim=-1)
            return nelbo_integrand(logp_NK, *columns)

        every = torch.ones_like(x0, dtype=torch.bool).nonzero(as_tuple=True)
        columns = (xt.flatten(), x0.flatten(), alpha_B[every[0]], dalpha_B[every[0]])
        network, chunk = self.backbone, self.config.loss.chunk_rows
        nll_N = by_rows(of_rows, network, state, every, columns, chunk)
        return nll_N.view(x0.shape)

    def _optimizer_step(self) -> int:
        return self.trainer.global_step

    def _forward_pass_diffusion(self, x0: Tensor) -> Tensor:
        if not self.training or not self.curriculum.active(step := self._optimizer_step()):
            return super()._forward_pass_diffusion(x0)
        t_B = self._sample_t(x0.shape[0], x0.device)
        gamma_B, alpha_B, dalpha_B = self.curriculum.signal(t_B, self.vocab_size)
        soft = self._latent(x0, gamma_B, self.curriculum.tau_log10(step))
        sigma_B = self._process_sigma(-torch.log(alpha_B).float())
        shape = (x0.shape[0], x0.shape[1])
        state = encode_soft(self.backbone, soft, shape, sigma_B)
        self.calls += 1
        return self._integrand(state, x0, soft.hard_N.view(shape), alpha_B, dalpha_B)

    def _latent(self, x0: Tensor, gamma_B: Tensor, tau_log10: float) -> SoftTokens:
        """Soft tokens of a batch; ``curriculum.columns`` of them where the rest weighs nothing."""
        gamma_N = gamma_B[:, None].expand(x0.shape).flatten()
        tau, columns = 10.0**tau_log10, self.settings.curriculum.columns
        enough = 4 * (self.vocab_size - 1) >= columns**2 and self.vocab_size > columns + 1
        if tau_log10 <= TAIL_WEIGHS_NOTHING and enough:
            return top_latent(x0.flatten(), gamma_N, self.vocab_size, tau, columns)
        return dense_latent(x0.flatten(), gamma_N.float(), self.vocab_size, tau)

    # --- sampling ------------------------------------------------------------------------------

    def draw_chains(self, start_GL: Tensor, num_steps: int, eps: float) -> Chains:
        """Ancestral steps from uniform ids and ``method.last_pass``, which is one call more."""
        start = torch.randint(self.vocab_size, start_GL.shape, device=start_GL.device)
        last = self.settings.last_pass if self.config.sampling.noise_removal else "none"
        return Chains(run_chain(self.forward, self.noise, start, num_steps, eps, last, self.draw))


class CurriculumSettings(Group):
    """DUO's soft tokens over the first steps."""

    start: Whole
    end: Whole
    tau_log10_start: Real
    tau_log10_end: Real
    gamma_min: Annotated[float | None, Number(null=True)]
    gamma_max: Annotated[float | None, Number(null=True)]
    columns: Count


class DUOSettings(DrawingSettings):
    """The last call, and the soft tokens of the first steps."""

    last_pass: Annotated[str, Choice("greedy", "ancestral", "none")]
    curriculum: CurriculumSettings


def check_curriculum(settings: Any) -> None:
    """Its ends and its range in order.

    Raises:
        UserError: names the key.
    """
    curriculum = settings.method.curriculum
    if curriculum.start > curriculum.end:
        raise UserError(
            f"method.curriculum.start={curriculum.start} must lie between 0 and "
            f"method.curriculum.end={curriculum.end} (end=0 turns the curriculum off)."
        )
    low, high = curriculum.gamma_min, curriculum.gamma_max
    if low is not None and high is not None and not low < high:
        raise UserError(
            f"method.curriculum.gamma_min={low} must lie below gamma_max={high}: noise grows "
            "with gamma."
        )


METHODS.add("duo")(
    Method(
        DUO,
        DUOSettings,
        process=UNIFORM,
        predictors=("ancestral",),
        fills_masks=False,
        check=check_curriculum,
        by_chunks=lambda config: True,
        label="DUO",
        color="#9467bd",
    )
)

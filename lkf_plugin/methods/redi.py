"""ReDi: DUO trained again on pairs of noise and text that its teacher has coupled.

In each round the teacher makes a text from each of many noises, by a long chain; the student learns
the way between both ends of a pair, where each noise has its own text, so that fewer steps suffice.
Then it is the next round's teacher.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor

from lkf_plugin.data.loader import StepOrder
from lkf_plugin.errors import UserError
from lkf_plugin.host.contract import Loss
from lkf_plugin.methods.duo import DUO
from lkf_plugin.methods.duo_curriculum import Curriculum
from lkf_plugin.methods.duo_sampler import LAST_PASSES, run_chain
from lkf_plugin.methods.method import METHODS, UNIFORM, Method
from lkf_plugin.methods.redi_math import bridge, simple_loss
from lkf_plugin.methods.redi_pairs import PairPlan, Pairs, make_missing, read_pairs
from lkf_plugin.methods.taught import Taught, TaughtSettings, check_rounds, weights_digest
from lkf_plugin.settings.fields import Choice, Count
from lkf_plugin.subs import at_least_float32
from lkf_plugin.train.seeding import derive_seed

FOLDER = "pairs"  # in the run folder
MIN_TIME = 1e-5  # where the chains of the pairs end
LOSSES = ("elbo", "simple")


class ReDi(Taught, DUO):
    """Rectified discrete flow.

    The run's text is validated on and never trained on: a pair's text is the teacher's. Validation
    computes the student's own NELBO for DUO's noise, which is not what its pairs have.
    """

    def __init__(self, config: Any, tokenizer: Any) -> None:
        super().__init__(config, tokenizer)
        self._pairs: Pairs | None = None
        self._order: StepOrder | None = None

    def _read_curriculum(self) -> Curriculum:
        return Curriculum(0, 0, -3.0, -3.0, -3.5, -1.75)  # plain from the first step on

    # --- pairs ---------------------------------------------------------------------------------

    def _succeed(self) -> None:
        """Like another run that starts from this one's average."""
        self._go_on_from_average()
        self.teacher.load_state_dict(self.backbone.state_dict())
        self.restart_optimizer()
        self._pairs = None

    def plan(self) -> PairPlan:
        """Of the present round."""
        config, settings = self.config, self.settings
        return PairPlan(
            teacher=weights_digest(self.teacher),
            pairs=settings.pairs,
            part=config.loader.eval_batch_size,
            length=config.model.length,
            vocab_size=self.vocab_size,
            steps=settings.generation_steps,
            last_pass=settings.last_pass,
            float64_draws=settings.float64_draws,
            seed=self._pair_seed(),
        )

    def _pair_seed(self) -> int:
        return derive_seed(self.config.seed, "pairs", self.round)

    def require_pairs(self) -> Pairs:
        """The pairs of the present round: made where they are missing, else read."""
        if self._pairs is not None:
            return self._pairs
        plan, rank, world = self.plan(), self.global_rank, self.trainer.world_size
        folder = Path(self.config.run_dir) / FOLDER / f"round-{self.round}"
        make_missing(folder, plan, self._make_part, rank, world)
        self.trainer.strategy.barrier()
        if rank == 0:
            self._pairs = read_pairs(folder, plan)
        self.trainer.strategy.barrier()
        if self._pairs is None:
            self._pairs = read_pairs(folder, plan)
        batch = self.config.loader.batch_size
        self._order = StepOrder(plan.pairs, batch, plan.seed, rank, world)
        return self._pairs

    @torch.no_grad()
    def _make_part(self, number: int, size: int) -> tuple[Tensor, Tensor]:
        """Noise and what the teacher makes of it; global generators are left as they were."""
        device, steps = self.device, self.settings.generation_steps
        devices = [device] if device.type == "cuda" else []

        def log_probs(x: Tensor, sigma_B: Tensor) -> Tensor:
            logits = self.teacher(x, self._process_sigma(sigma_B))
            return torch.log_softmax(at_least_float32(logits), dim=-1)

        with (
            torch.random.fork_rng(devices=devices),
            torch.autocast(device.type, enabled=False),
        ):
            torch.manual_seed(derive_seed(self._pair_seed(), number))
            shape = (size, self.config.model.length)
            xT = torch.randint(self.vocab_size, shape, device=device)
            last = self.settings.last_pass
            x0 = run_chain(log_probs, self.noise, xT, steps, MIN_TIME, last, self.draw)
        return xT, x0

    def _calls_of_pairs(self) -> int:
        """The teacher's calls for the rounds up to the present one, on all processes."""
        chain = self.settings.generation_steps + (self.settings.last_pass != "none")
        parts = -(-self.settings.pairs // self.config.loader.eval_batch_size)
        return (self.round + 1) * parts * chain

    # --- training ------------------------------------------------------------------------------

    def _loss(self, x0: Tensor, attention_mask: Tensor) -> Loss:
        if not self.training:
            return super()._loss(x0, attention_mask)
        pairs = self.require_pairs()
        assert self._order is not None
        self.teacher_calls = self._calls_of_pairs()
        rows = self._order.indices(self.trainer.fit_loop.total_batch_idx)[: len(x0)]
        xT, x0 = pairs.xT_PL[rows].to(x0.device), pairs.x0_PL[rows].to(x0.device)
        t_B = self._sample_t(len(x0), x0.device)
        alpha_B = self.signal(t_B)[0]
        xt = bridge(x0, xT, alpha_B, torch.rand(x0.shape, device=x0.device))
        if self.settings.loss == "simple":
            nlls = simple_loss(self.forward(xt, -torch.log(alpha_B)), x0)
        else:
            nlls = self.token_nll(x0, xt, t_B)
        return Loss(nlls.mean(), nlls, torch.ones_like(nlls))


class ReDiSettings(TaughtSettings):
    """The pairs of a round, and the loss on them."""

    pairs: Count
    generation_steps: Count
    last_pass: Annotated[str, Choice(*LAST_PASSES)]
    loss: Annotated[str, Choice(*LOSSES)]


def check_redi(settings: Any) -> None:
    """Rounds that divide the training, and a batch of pairs.

    Raises:
        UserError: names the key.
    """
    check_rounds(settings)
    batch = settings.loader.global_batch_size
    if settings.method.pairs < batch:
        raise UserError(
            f"method.pairs={settings.method.pairs} must be at least loader.global_batch_size="
            f"{batch}, of which a step is made."
        )


METHODS.add("redi")(
    Method(
        ReDi,
        ReDiSettings,
        process=UNIFORM,
        predictors=("ancestral",),
        fills_masks=False,
        likelihood="NELBO of the student itself under DUO's noise on held-out text; it was trained "
        "on its teacher's pairs, and few-step samples are not what it bounds",
        check=check_redi,
        label="ReDi",
        color="#e377c2",
    )
)

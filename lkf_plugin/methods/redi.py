"""ReDi: DUO trained again on pairs of noise and text that its teacher has coupled.

In each round the teacher makes a text from each of many noises, by a long chain; the student learns
the way between both ends of a pair, where each noise has its own text, so that fewer steps suffice.
Then it is the next round's teacher.

A perturbed round begins its pairs between noise and a text of the run's own: of each text a share
of positions, drawn for each pair, is kept, and the teacher goes on from there.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor

from lkf_plugin.data.loader import StepOrder, TokenBatches
from lkf_plugin.errors import UserError
from lkf_plugin.host.contract import Loss
from lkf_plugin.methods.duo import DUO
from lkf_plugin.methods.duo_curriculum import Curriculum
from lkf_plugin.methods.duo_sampler import LAST_PASSES, run_chains
from lkf_plugin.methods.method import METHODS, UNIFORM, Method
from lkf_plugin.methods.redi_math import bridge, chain_steps, perturb, simple_loss
from lkf_plugin.methods.redi_pairs import PairPlan, Pairs, make_missing, read_pairs
from lkf_plugin.methods.taught import Taught, TaughtSettings, check_rounds, weights_digest
from lkf_plugin.settings.fields import Choice, Count, Flag
from lkf_plugin.subs import at_least_float32
from lkf_plugin.train.seeding import derive_seed

FOLDER = "pairs"  # in the run folder
MIN_TIME = 1e-5  # where the chains of the pairs end
LOSSES = ("elbo", "simple")
TIMES = ("all", "start")


class ReDi(Taught, DUO):
    """Rectified discrete flow.

    The run's text is never learned: a pair's text is the teacher's. Validation computes the
    student's own NELBO for DUO's noise, which is not what its pairs have.
    """

    def __init__(self, config: Any, tokenizer: Any) -> None:
        super().__init__(config, tokenizer)
        self._pairs: Pairs | None = None
        self._order: StepOrder | None = None
        self._clean_P = torch.zeros(0)  # of the present round's pairs
        self._text_PL: Tensor | None = None  # what their starts are made of

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
        config, settings, text_PL = self.config, self.settings, self._text_PL
        return PairPlan(
            teacher=weights_digest(self.teacher),
            pairs=settings.pairs,
            part=config.loader.eval_batch_size,
            length=config.model.length,
            vocab_size=self.vocab_size,
            steps=settings.generation_steps,
            last_pass=settings.last_pass,
            float64_draws=settings.float64_draws,
            seed=self._pair_seed(self.round),
            texts="" if text_PL is None else sha256(text_PL.numpy().tobytes()).hexdigest(),
        )

    def _pair_seed(self, number: int) -> int:
        return derive_seed(self.config.seed, "pairs", number)

    def clean_shares(self, number: int) -> Tensor:
        """Share of each pair's start that is text, in round ``number``, float64 [P]."""
        pairs, length = self.settings.pairs, self.config.model.length
        if not self.settings.perturbed:
            return torch.zeros(pairs, dtype=torch.float64)
        generator = torch.Generator().manual_seed(derive_seed(self._pair_seed(number), "clean"))
        return torch.randint(length, (pairs,), generator=generator).double() / length

    def _texts(self) -> Tensor:
        """A text of the run for each pair, [P, L]: none twice before all were taken."""
        datamodule: Any = self.trainer.datamodule  # type: ignore[attr-defined]
        batches = TokenBatches(datamodule.prepared.train, memory_limit=0)
        generator = torch.Generator()
        generator.manual_seed(derive_seed(self._pair_seed(self.round), "texts"))
        order = torch.randperm(len(batches), generator=generator)
        rows = order[torch.arange(self.settings.pairs) % len(order)]
        return batches.batch(rows)["input_ids"]

    def require_pairs(self) -> Pairs:
        """The pairs of the present round: made where they are missing, else read."""
        if self._pairs is not None:
            return self._pairs
        self._clean_P = self.clean_shares(self.round)
        self._text_PL = self._texts() if self.settings.perturbed else None
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
        self.teacher_calls = sum(map(self._calls_of_pairs, range(self.round + 1)))
        return self._pairs

    @torch.no_grad()
    def _make_part(self, number: int, size: int) -> tuple[Tensor, Tensor]:
        """Starts and what the teacher makes of them; global generators are left as they were."""
        device = self.device
        devices = [device] if device.type == "cuda" else []
        first = number * self.config.loader.eval_batch_size
        clean_G = self._clean_P[first : first + size]

        def log_probs(x: Tensor, sigma_B: Tensor) -> Tensor:
            logits = self.teacher(x, self._process_sigma(sigma_B))
            return torch.log_softmax(at_least_float32(logits), dim=-1)

        with (
            torch.random.fork_rng(devices=devices),
            torch.autocast(device.type, enabled=False),
        ):
            torch.manual_seed(derive_seed(self._pair_seed(self.round), number))
            shape = (size, self.config.model.length)
            xT = torch.randint(self.vocab_size, shape, device=device)
            if self._text_PL is not None:
                text = self._text_PL[first : first + size].to(device)
                xT = perturb(text, xT, torch.rand(shape, device=device), clean_G.float().to(device))
            steps_G = chain_steps(clean_G, self.settings.generation_steps)
            last = self.settings.last_pass
            x0 = run_chains(
                log_probs, self.noise, xT, 1 - clean_G, steps_G, MIN_TIME, last, self.draw
            )
        return xT, x0

    def _calls_of_pairs(self, number: int) -> int:
        """The teacher's calls for the pairs of a round, on all processes."""
        steps_P = chain_steps(self.clean_shares(number), self.settings.generation_steps)
        parts = steps_P.split(self.config.loader.eval_batch_size)
        last = self.settings.last_pass != "none"
        return sum(int(steps.max()) + last for steps in parts)

    # --- training ------------------------------------------------------------------------------

    def _loss(self, x0: Tensor, attention_mask: Tensor) -> Loss:
        if not self.training:
            return super()._loss(x0, attention_mask)
        pairs = self.require_pairs()
        assert self._order is not None
        rows = self._order.indices(self.trainer.fit_loop.total_batch_idx)[: len(x0)]
        xT, x0 = pairs.xT_PL[rows].to(x0.device), pairs.x0_PL[rows].to(x0.device)
        clean_B = self._clean_P[rows].float().to(x0.device)
        t_B = 1 - clean_B
        if self.settings.times == "all":
            t_B = t_B * self._sample_t(len(x0), x0.device)
        alpha_B = self.signal(t_B)[0]
        xt = bridge(x0, xT, alpha_B, torch.rand(x0.shape, device=x0.device), clean_B)
        if self.settings.loss == "simple":
            nlls = simple_loss(self.forward(xt, -torch.log(alpha_B)), x0)
        else:
            nlls = self.token_nll(x0, xt, t_B)
        return Loss(nlls.mean(), nlls, torch.ones_like(nlls))


class ReDiSettings(TaughtSettings):
    """The pairs of a round, and the loss on them."""

    pairs: Count
    perturbed: Flag
    generation_steps: Count
    last_pass: Annotated[str, Choice(*LAST_PASSES)]
    loss: Annotated[str, Choice(*LOSSES)]
    times: Annotated[str, Choice(*TIMES)]


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
        by_chunks=lambda config: config.method.loss == "elbo",
        meant={"perturbed": False, "times": "all"},
        label="ReDi",
        color="#e377c2",
    )
)

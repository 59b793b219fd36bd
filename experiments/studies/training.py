"""The training loop of the studies.

The corpora are drawn as they are needed: batch and noise are functions of (seed, step), so a run
that is cut off goes on from its checkpoint as if nothing had happened. Everything else is the
library's: networks, corruption, objectives, schedule, average.

Shape legend: B sequences, M components, L positions. Unit: nats.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from experiments.studies.perturbation import perturb_last_bit
from experiments.studies.recipe import Recipe, make_corpus
from experiments.studies.ties import (
    EVERY,
    Balance,
    apply_split,
    first_step_mixture,
    plan_split,
    regularizer_scale,
)
from lkf_plugin.backbone import LatentKernelBackbone, build_backbone
from lkf_plugin.errors import UserError
from lkf_plugin.files import write_atomically
from lkf_plugin.information.laws import network_law
from lkf_plugin.latents.structure import build_structure
from lkf_plugin.objective.components import ComponentScores
from lkf_plugin.objective.draws import PlainDraws
from lkf_plugin.objective.mixture import Mixture
from lkf_plugin.objective.objective import Corruption, Objective
from lkf_plugin.objective.two_time import TwoTime
from lkf_plugin.progress import bar
from lkf_plugin.train.checkpoint import AtomicCheckpointIO
from lkf_plugin.train.ema import ExponentialMovingAverage
from lkf_plugin.train.schedules import linear_decay
from lkf_plugin.train.seeding import derive_seed, seed_position

CHECKPOINT = "last.ckpt"
SAVE_EVERY = 500
SPLIT_ROWS = 4096


class Trainer:
    """One run: network, optimizer, schedule and where it stands."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.corpus = make_corpus(recipe.corpus)
        self.mask = self.corpus.mask_id
        seed_position(recipe.seed, "start")
        network = build_backbone(recipe.model(), self.mask + 1, self.mask)
        assert isinstance(network, LatentKernelBackbone)
        self.backbone = network
        trained = [p for p in network.parameters() if p.requires_grad]
        if recipe.perturb:
            perturb_last_bit(trained, recipe.seed)
        self.optimizer = torch.optim.AdamW(
            trained, lr=recipe.lr, betas=(0.9, 0.99), weight_decay=0.0
        )
        self.schedule = linear_decay(self.optimizer, recipe.steps, recipe.warmup, 0.4)
        self.objective = objective_of(recipe)
        self.ties = set(recipe.ties.split("+")) if recipe.components > 1 else set()
        self.balance = Balance()
        self.average = ExponentialMovingAverage(trained, recipe.ema) if recipe.ema else None
        self.step = 0
        self.splits: list[dict[str, Any]] = []

    # --- one step ------------------------------------------------------------------------------

    def train_step(self) -> float:
        """One update; returns the objective without the regulariser."""
        recipe, step = self.recipe, self.step
        if "split" in self.ties and self._split_due():
            self._split()
        x1_BL = self.corpus.sample(recipe.batch, derive_seed(recipe.seed, "rows", step))
        seed_position(recipe.seed, "noise", step)
        corruption = corrupt(self.objective, x1_BL, self.mask)
        scores = self.objective.score(self.backbone, corruption)
        value = self.objective.loss(scores, corruption)
        loss, penalty = value.loss, value.penalty
        two_time = recipe.objective == "two_time"
        if two_time and "balance" in self.ties and 2 * step < recipe.steps:
            loss = self._balanced(scores, value.nll_B, corruption.counted_BL.all(-1)).mean()
            penalty = self.objective.penalty(scores.potentials)  # last: sums keep their order
        if "anneal" in self.ties:
            penalty = penalty * regularizer_scale(step, recipe.steps)
        total = loss + penalty
        self.optimizer.zero_grad(set_to_none=True)
        total.backward()
        trained = self.optimizer.param_groups[0]["params"]
        torch.nn.utils.clip_grad_norm_(trained, 1.0, error_if_nonfinite=True)
        self.optimizer.step()
        self.schedule.step()
        if self.average is not None:
            self.average.update(trained)
        self.step = step + 1
        return loss.item()

    def _balanced(self, scores: ComponentScores, nll_B: Tensor, open_B: Tensor) -> Tensor:
        """``nll_B`` with the gradient of balanced responsibilities in all-mask rows."""
        if not bool(open_B.any()):
            return nll_B
        score_AM = (scores.potentials.logw_BK + scores.logp_BML.sum(-1))[open_B]
        gamma_AM = self.balance.responsibilities(score_AM)
        surrogate_A = -(gamma_AM * score_AM).sum(-1)
        value_A = nll_B[open_B].detach()
        return nll_B.masked_scatter(open_B, surrogate_A - surrogate_A.detach() + value_A)

    def _split_due(self) -> bool:
        """Between a tenth and six tenths of the run, before the rate falls."""
        steps, step = self.recipe.steps, self.step
        return steps <= 10 * step and 10 * step <= 6 * steps and step % EVERY == 0

    def _split(self) -> None:
        recipe = self.recipe
        seed = derive_seed(recipe.seed, "split", self.step)
        law = network_law(self.backbone, recipe.form, two_time=recipe.objective == "two_time")
        mixture = first_step_mixture(self.backbone, law, self.corpus.length)
        plan = plan_split(mixture, self.corpus.sample(SPLIT_ROWS, seed), seed)
        if plan is not None:
            apply_split(self.backbone, self.optimizer, plan, mixture.logw_M, self.corpus.length)
            moved = {"kept": plan.kept, "freed": plan.freed, "divided": plan.divided}
            averaged = plan.merged_LV is not None
            self.splits.append(
                {"step": self.step, **moved, "gain": plan.gain, "averaged": averaged}
            )

    # --- checkpoints ---------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """All that a resumed run needs."""
        return {
            "recipe": asdict(self.recipe),
            "step": self.step,
            "backbone": self.backbone.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "average": self.average.state_dict() if self.average else None,
            "memory": self.balance.memory_QM,
            "splits": self.splits,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Goes on from a saved state."""
        if Recipe(**state["recipe"]) != self.recipe:
            raise UserError("The checkpoint belongs to another recipe: remove its folder.")
        self.backbone.load_state_dict(state["backbone"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        self.balance.memory_QM = state["memory"]
        self.splits, self.step = state["splits"], state["step"]

    def finished(self) -> LatentKernelBackbone:
        """The network to be looked at, in eval mode, with averaged weights if there are any."""
        if self.average is not None:
            self.average.copy_to(self.optimizer.param_groups[0]["params"])
        return self.backbone.eval().requires_grad_(False)


def objective_of(recipe: Recipe) -> Objective:
    """The library's objective as a recipe sets it."""
    settings = {
        "token_head": "full",  # the vocabularies are tiny
        "chunk_rows": 4096,
        "lambda_ent": recipe.lambda_ent,
        "lambda_lb": recipe.lambda_lb,
        "form": recipe.form,
        "t_max": recipe.t_max,
    }
    kind = TwoTime if recipe.objective == "two_time" else Mixture
    return kind(settings, build_structure(recipe.model()))


def corrupt(objective: Objective, x1_BL: Tensor, mask_index: int) -> Corruption:
    """One draw of the forward process for whole texts, from torch's global generator."""
    return objective.corrupt(x1_BL, torch.ones_like(x1_BL), PlainDraws.of(mask_index))


def train(recipe: Recipe, root: Path, quiet: bool = False) -> Trainer:
    """Trains a recipe to its end, from wherever it stands; at once where it is done.

    Args:
        recipe: what to train.
        root: the studies' folder.
        quiet: no progress bar.
    """
    trainer, folder = Trainer(recipe), recipe.folder(root)
    path = folder / CHECKPOINT
    if path.is_file():
        trainer.load(torch.load(path, map_location="cpu", weights_only=True))
    if trainer.step >= recipe.steps:
        return trainer
    text = json.dumps(asdict(recipe), indent=2, sort_keys=True) + "\n"
    write_atomically(folder / "recipe.json", text)
    writer = AtomicCheckpointIO()
    with bar(
        title=recipe.name, unit="step", total=recipe.steps, done=trainer.step, keep=True,
        shown=not quiet,
    ) as steps:  # fmt: skip
        while trainer.step < recipe.steps:
            loss = trainer.train_step()
            steps.update()
            if trainer.step % 50 == 0:
                steps.set_postfix_str(f"loss {loss:.3f}", refresh=False)
            if trainer.step % SAVE_EVERY == 0 or trainer.step == recipe.steps:
                writer.save_checkpoint(trainer.state(), path)
    return trainer

"""A frozen teacher, and rounds after each of which the student becomes the teacher.

What distillation methods share (SDTT, Di4C, ReDi): a network of the student's own shape whose
weights come from another run and are never trained. The steps are divided evenly into rounds; in
each round after the first the teacher is the student (its weight average, if there is one) as it
stood when the round began. Which round a step belongs to is a function of the step, and the
teacher of the present round is in the checkpoint, so that a run resumes exactly.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from lkf_plugin.checkpoint_file import read_checkpoint
from lkf_plugin.errors import UserError
from lkf_plugin.methods.baseline import DiffusionBaseline
from lkf_plugin.methods.method import DrawingSettings
from lkf_plugin.settings.fields import Count, MaybePath
from lkf_plugin.train.ema import ExponentialMovingAverage
from lkf_plugin.train.metrics import Extra

KEY = "teacher"  # in a checkpoint


class TaughtSettings(DrawingSettings):
    """The first teacher, and how often it changes."""

    teacher: MaybePath
    rounds: Count


def check_rounds(settings: Any) -> None:
    """There is a teacher to learn from, it fits a device, and the rounds divide the steps.

    Raises:
        UserError: names the key.
    """
    if settings.process.mode != "train":
        return  # what is evaluated has learned already, here or elsewhere
    if not settings.method.teacher:
        raise UserError(
            f"method={settings.method.name} learns from another run: name its checkpoint in "
            "method.teacher."
        )
    if "FSDP" in settings.strategy.target:
        raise UserError(
            f"method={settings.method.name} holds a whole teacher on each device: take "
            "strategy=ddp or auto."
        )
    steps, rounds = settings.trainer.max_steps, settings.method.rounds
    if steps % rounds:
        raise UserError(
            f"method.rounds={rounds} must divide trainer.max_steps={steps}, so that every round "
            "has as many steps."
        )


class Taught(DiffusionBaseline):
    """Base of the methods that learn from ``self.teacher``; subclasses define their loss.

    The student starts from the teacher's weights, unless ``init.from_checkpoint`` says otherwise.
    """

    def __init__(self, config: Any, tokenizer: Any) -> None:
        super().__init__(config, tokenizer)
        self.round = 0
        self.teacher_calls = 0  # the teacher's evaluations for a batch
        # in a list, which torch does not look into: no weight of it is trained, averaged or saved
        self._frozen: list[nn.Module] = []
        self._first_digest = ""
        if self.config.mode == "train":
            self._take_first_teacher(self.settings.teacher)

    @property
    def teacher(self) -> nn.Module:
        """The frozen network of the present round, in evaluation mode."""
        return self._frozen[0]

    def _take_first_teacher(self, source: str) -> None:
        teacher = copy.deepcopy(self.backbone)
        checkpoint = read_checkpoint(source)
        prefix = "backbone."
        state = {
            name.removeprefix(prefix): tensor
            for name, tensor in checkpoint["state_dict"].items()
            if name.startswith(prefix)
        }
        try:
            self._read_teacher(teacher, state)
        except RuntimeError as error:
            raise UserError(
                f"method.teacher={source} holds another network than the model settings describe:"
                " a teacher has its student's vocabulary, length and size."
            ) from error
        if "ema" in checkpoint:
            held = [weight for name, weight in teacher.named_parameters() if name in state]
            average = ExponentialMovingAverage(held, 0.0)
            average.load_state_dict(checkpoint["ema"])
            average.copy_to(held)
        self._frozen = [teacher.requires_grad_(False).eval()]
        self._first_digest = weights_digest(teacher)
        if not self.config.init.from_checkpoint:
            self.backbone.load_state_dict(teacher.state_dict())
            self._start_average()

    def _read_teacher(self, teacher: nn.Module, state: dict[str, Tensor]) -> None:
        """Puts a checkpoint's weights into the first teacher.

        Raises:
            RuntimeError: they are of another network.
        """
        teacher.load_state_dict(state)

    # --- rounds --------------------------------------------------------------------------------

    def round_of(self, step: int) -> int:
        """Round of an optimizer step, from 0."""
        return min(step // self.steps_per_round, self.settings.rounds - 1)

    @property
    def steps_per_round(self) -> int:
        """Optimizer steps of each round."""
        return int(self.config.trainer.max_steps // self.settings.rounds)

    def _compute_loss(self, batch: Mapping[str, Tensor], prefix: str) -> Tensor:
        if prefix == "train":
            self._enter_round(self.round_of(self.trainer.global_step))
        return super()._compute_loss(batch, prefix)

    def _enter_round(self, number: int) -> None:
        self.teacher.to(self.device)
        if number == self.round:
            return
        self.round = number
        self._succeed()

    def _succeed(self) -> None:
        """The student becomes the teacher of the round that begins."""
        self.teacher.load_state_dict(self.backbone.state_dict())
        if self.ema is not None:
            trained = [p for p in self.backbone.parameters() if p.requires_grad]
            frozen = dict(self.teacher.named_parameters())
            names = [n for n, p in self.backbone.named_parameters() if p.requires_grad]
            shadows = self.ema.shadow_params[: len(trained)]
            with torch.no_grad():
                for name, shadow in zip(names, shadows, strict=True):
                    frozen[name].copy_(shadow)

    def _go_on_from_average(self) -> None:
        """The student's weights become its average, which begins anew; nothing without one."""
        if self.ema is not None:
            self.ema.copy_to(self._weights())
            self._start_average()

    def restart_optimizer(self) -> None:
        """No moments, and the learning rate from its schedule's beginning."""
        for optimizer in self.trainer.optimizers:
            optimizer.state.clear()
        for one in self.trainer.lr_scheduler_configs:
            schedule: Any = one.scheduler
            schedule.last_epoch = 0
            rates = [
                base * factor(0)
                for base, factor in zip(schedule.base_lrs, schedule.lr_lambdas, strict=True)
            ]
            for group, rate in zip(schedule.optimizer.param_groups, rates, strict=True):
                group["lr"] = rate
            schedule._last_lr = rates

    def log_extras(self, prefix: str) -> Mapping[str, Extra]:
        """In training, the round and what the teacher has cost so far."""
        if prefix != "train":
            return {}
        return {"round": float(self.round), "teacher_calls": float(self.teacher_calls)}

    def training_facts(self) -> dict[str, Any]:
        """What records say of the training."""
        return {"round": self.round + 1, "teacher_calls": self.teacher_calls}

    # --- checkpoints ---------------------------------------------------------------------------

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Adds the round, the first teacher's digest, and a later round's teacher."""
        super().on_save_checkpoint(checkpoint)
        own = {n: t.detach().cpu().clone() for n, t in self.teacher.state_dict().items()}
        checkpoint[KEY] = {
            "round": self.round,
            "steps": self.steps_per_round,
            "calls": self.teacher_calls,
            "digest": self._first_digest,
            "weights": own if self.round else None,
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Takes them back; an evaluation needs no teacher's weights.

        Raises:
            UserError: the run began with another teacher, or with rounds of another length.
        """
        super().on_load_checkpoint(checkpoint)
        state = checkpoint.get(KEY)
        if state is not None:
            self.round, self.teacher_calls = int(state["round"]), int(state["calls"])
        if not self._frozen:
            return
        if state is None or state["digest"] != self._first_digest:
            began = "none" if state is None else str(state["digest"])[:12]
            raise UserError(
                f"method.teacher={self.settings.teacher} has weights {self._first_digest[:12]}, "
                f"and the run began with {began}: bring that teacher back to go on, or give "
                "another run_dir."
            )
        if state["steps"] != self.steps_per_round:
            raise UserError(
                f"trainer.max_steps={self.config.trainer.max_steps} makes rounds of "
                f"{self.steps_per_round} steps, and the run's have {state['steps']}: keep "
                f"trainer.max_steps={state['steps'] * self.settings.rounds} to go on, or give "
                "another run_dir."
            )
        if state["weights"] is not None:
            self.teacher.load_state_dict(state["weights"])


def weights_digest(network: nn.Module) -> str:
    """SHA-256 of a network's weights, by name."""
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()

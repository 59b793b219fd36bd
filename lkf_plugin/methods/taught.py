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
from lkf_plugin.settings.fields import Count, Path
from lkf_plugin.train.ema import ExponentialMovingAverage

KEY = "teacher"  # in a checkpoint


class TaughtSettings(DrawingSettings):
    """The first teacher, and how often it changes."""

    teacher: Path
    rounds: Count


def check_rounds(settings: Any) -> None:
    """The rounds divide the steps.

    Raises:
        UserError: they do not.
    """
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
            teacher.load_state_dict(state)
        except RuntimeError as error:
            raise UserError(
                f"method.teacher={source} holds another network than the model settings describe:"
                " a teacher has its student's vocabulary, length and size."
            ) from error
        if "ema" in checkpoint:
            average = ExponentialMovingAverage(teacher.parameters(), 0.0)
            average.load_state_dict(checkpoint["ema"])
            average.copy_to(teacher.parameters())
        self._frozen = [teacher.requires_grad_(False).eval()]
        self._first_digest = weights_digest(teacher)
        if not self.config.init.from_checkpoint:
            self.backbone.load_state_dict(teacher.state_dict())
            self._start_average()

    # --- rounds --------------------------------------------------------------------------------

    def round_of(self, step: int) -> int:
        """Round of an optimizer step, from 0."""
        per_round = self.config.trainer.max_steps // self.settings.rounds
        return min(step // per_round, self.settings.rounds - 1)

    def _compute_loss(self, batch: Mapping[str, Tensor], prefix: str) -> Tensor:
        if prefix == "train":
            self._enter_round(self.round_of(self.trainer.global_step))
        return super()._compute_loss(batch, prefix)

    def _enter_round(self, number: int) -> None:
        self.teacher.to(self.device)
        if number == self.round:
            return
        self.round = number
        self.teacher.load_state_dict(self.backbone.state_dict())
        if self.ema is not None:
            trained = [p for p in self.backbone.parameters() if p.requires_grad]
            frozen = dict(self.teacher.named_parameters())
            names = [n for n, p in self.backbone.named_parameters() if p.requires_grad]
            shadows = self.ema.shadow_params[: len(trained)]
            with torch.no_grad():
                for name, shadow in zip(names, shadows, strict=True):
                    frozen[name].copy_(shadow)

    # --- checkpoints ---------------------------------------------------------------------------

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Adds the round, the first teacher's digest, and a later round's teacher."""
        super().on_save_checkpoint(checkpoint)
        own = {n: t.detach().cpu().clone() for n, t in self.teacher.state_dict().items()}
        checkpoint[KEY] = {
            "round": self.round,
            "digest": self._first_digest,
            "weights": own if self.round else None,
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Takes them back in training; an evaluation needs no teacher.

        Raises:
            UserError: the run began with another teacher.
        """
        super().on_load_checkpoint(checkpoint)
        if not self._frozen:
            return
        state = checkpoint.get(KEY)
        if state is None or state["digest"] != self._first_digest:
            began = "none" if state is None else str(state["digest"])[:12]
            raise UserError(
                f"method.teacher={self.settings.teacher} has weights {self._first_digest[:12]}, "
                f"and the run began with {began}: bring that teacher back to go on, or give "
                "another run_dir."
            )
        self.round = int(state["round"])
        if state["weights"] is not None:
            self.teacher.load_state_dict(state["weights"])


def weights_digest(network: nn.Module) -> str:
    """SHA-256 of a network's weights, by name."""
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()

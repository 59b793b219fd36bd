"""Checkpoints that survive a kill at any time, and a callback that says when to take them.

Files in the checkpoint folder: ``last.ckpt`` (resume from here), ``step-N.ckpt`` (the newest few)
and ``best.ckpt`` (lowest monitored value). Equal ones share their bytes on disk.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.pytorch.callbacks import Checkpoint

from lkf_plugin.checkpoint_file import read_checkpoint
from lkf_plugin.errors import UserError
from lkf_plugin.train import read_once
from lkf_plugin.train.csv_log import CsvLog
from lkf_plugin.train.stopping import Preempted, StopSignals

LAST, BEST = "last.ckpt", "best.ckpt"


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes beside the target, flushes to the device, then renames: never half a file.

    A checkpoint that was just read to look at it (``read_once``) is not read again.
    """

    def load_checkpoint(self, path: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The contents of a local checkpoint; no object is ever unpickled."""
        kept = read_once.take(path)
        return read_checkpoint(path) if kept is None else kept

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        """Saves one checkpoint.

        Raises:
            UserError: the disk is full; what was there before is untouched.
        """
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = target.with_name(f".{target.name}.tmp")  # one name: kills leave one at most
        try:
            with scratch.open("wb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(scratch, target)
        except BaseException as error:
            scratch.unlink(missing_ok=True)
            if _disk_full(error):
                raise UserError(
                    f"The disk is full, so {target} could not be saved: free some space and run "
                    "the same command again; the checkpoint before it is intact."
                ) from error
            raise
        _flush_folder(target.parent)


def _disk_full(error: BaseException | None) -> bool:
    """Whether ENOSPC or a quota is behind it (torch's writer may wrap it in a RuntimeError)."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        error = error.__cause__ or error.__context__
    return False


def _flush_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def share_file(source: Path, target: Path) -> None:
    """Makes ``target`` the same file as ``source``, replacing it in one stroke."""
    scratch = target.with_name(f".{target.name}.tmp")
    scratch.unlink(missing_ok=True)
    try:
        os.link(source, scratch)
    except OSError:  # a file system without hard links
        shutil.copyfile(source, scratch)
    os.replace(scratch, target)


class StepCheckpoint(Checkpoint):
    """Saves every few steps, at the best validation, at the end, and on SIGTERM or Ctrl-C.

    A step with a validation is saved after it, so that a resumed run neither repeats nor misses
    one. Training on the built-in host resumes bit for bit.

    Args:
        dirpath: folder of the checkpoints.
        every_n_steps: optimizer steps between two saves.
        keep_last: how many ``step-N.ckpt`` to keep; 0 keeps none.
        monitor: logged value whose minimum ``best.ckpt`` follows; None for no best.ckpt.
    """

    def __init__(
        self,
        dirpath: str,
        every_n_steps: int,
        keep_last: int = 1,
        monitor: str | None = "val/nll",
    ) -> None:
        super().__init__()
        if every_n_steps < 1:
            raise UserError(f"checkpointing.every_n_steps={every_n_steps} must be at least 1.")
        if keep_last < 0:
            raise UserError(f"checkpointing.keep_last={keep_last} must be 0 or more.")
        self.folder = Path(dirpath)
        self.every_n_steps = every_n_steps
        self.keep_last = keep_last
        self.monitor = monitor
        self.best_value: float | None = None
        self.best_step = 0
        self.validated_step = 0  # newest step whose validation is behind us
        self._saved_step = 0
        self._seen_step = 0  # newest step after which we stood between two steps
        self._signals = StopSignals()
        self._shared_batches = 0.0  # validation batches that every process has
        self._end: int | None = None  # of a run whose last validation is still to be made

    # --- state ---------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers only."""
        return {
            "best_value": self.best_value,
            "best_step": self.best_step,
            "validated_step": self.validated_step,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores what ``state_dict`` gave."""
        self.best_value = state_dict["best_value"]
        self.best_step = state_dict["best_step"]
        self.validated_step = state_dict["validated_step"]

    def on_save_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Takes back the count of a batch that was fetched but not begun."""
        progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        for scope in ("total", "current"):
            progress[scope]["ready"] = progress[scope]["started"]

    def on_load_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Lets a run begin that has all its steps but not its last validation.

        Lightning skips a training without steps to do, so its end is put off until that is made.
        """
        step = checkpoint["global_step"]
        if 0 < trainer.max_steps <= step and lacks_validation(
            checkpoint, trainer.val_check_interval, trainer.accumulate_grad_batches
        ):
            self._end = trainer.max_steps
            trainer.fit_loop.epoch_loop.max_steps = step + 1

    # --- hooks ---------------------------------------------------------------------------------

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Makes every save of this trainer atomic; lets the module ask between long parts."""
        if hasattr(pl_module, "pause"):
            pl_module.pause = lambda: self._pause(trainer, pl_module)  # type: ignore[assignment]
        if type(trainer.strategy.checkpoint_io) is TorchCheckpointIO:
            trainer.strategy.checkpoint_io = AtomicCheckpointIO()

    def on_sanity_check_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Listens for signals from here on (after Lightning has set its own handlers)."""
        self._signals.listen()

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Rewinds the log, makes up for a validation that a signal cut short."""
        step = trainer.global_step
        self._saved_step = self._seen_step = step
        for logger in trainer.loggers:
            if isinstance(logger, CsvLog):
                logger.rewind(step)
        self._signals.listen()
        made_up = step > self.validated_step and _validation_due(trainer)
        if made_up:
            _validate_now(trainer)
        if self._end is not None or (made_up and step % self.every_n_steps == 0):
            self._save(trainer)  # as after the validation that was cut short
        if self._end is not None:
            trainer.fit_loop.epoch_loop.max_steps = self._end
            self._end = None

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, *args: Any
    ) -> None:
        """Between two batches: stops if told to; after a whole step, saves it if it is due.

        Only here have all of that step's values reached the log. A stop while gradients are being
        accumulated drops them: what is saved is the last whole step, which is all that a
        checkpoint holds, and the resumed run draws the same batches again.
        """
        self._signals.start_batch()
        step = trainer.global_step
        if self._stopping(trainer):
            self._stop(trainer, numbered=self._due(step))
        if step == self._seen_step:
            return  # gradients are being accumulated, or the run has just begun
        self._seen_step = step
        if self._due(step):
            self._save(trainer)

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Stops before a validation if told to; the resumed run begins with it."""
        self._signals.forget_batch()
        if not _in_training(trainer):
            return
        if self._stopping(trainer):
            self._stop(trainer)
        batches = torch.tensor(float(sum(trainer.num_val_batches)), device=pl_module.device)
        if trainer.world_size > 1:
            batches = trainer.strategy.reduce(batches, reduce_op="min")
        self._shared_batches = float(batches)

    def on_validation_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Cuts a validation short if told to; the resumed run does it again.

        Processes agree on it, so only after batches that all of them have.
        """
        if batch_idx < self._shared_batches:
            self._pause(trainer, pl_module)

    def _pause(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Leaves a validation, or the sampling after it, if told to (a collective call)."""
        abandon = getattr(pl_module, "abandon_validation", None)
        if abandon is not None and _in_training(trainer) and self._stopping(trainer):
            abandon()
            self._stop(trainer)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Follows the best value, then saves what waited for this validation."""
        if not _in_training(trainer):
            return
        step = trainer.global_step
        self.validated_step = step
        best = self._improved(trainer)
        if best or self._due(step):
            self._save(trainer, best=best, last=self._due(step))
        if self._stopping(trainer):
            self._stop(trainer)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Saves the end of the run."""
        if trainer.global_step > self._saved_step:
            self._save(trainer)

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Gives the signals back."""
        self._signals.release()

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        """Gives the signals back when training fails, too."""
        self._signals.release()

    # --- stopping ------------------------------------------------------------------------------

    def _stopping(self, trainer: L.Trainer) -> bool:
        """Whether any process was told to stop (a collective call)."""
        stopping = self._signals.received is not None or trainer.received_sigterm
        if trainer.world_size > 1:
            return trainer.strategy.reduce_boolean_decision(stopping, all=False)
        return stopping

    def _stop(self, trainer: L.Trainer, numbered: bool = False) -> None:
        """Saves and leaves; ``numbered`` where a step-N.ckpt would have been saved anyway."""
        step, last = trainer.global_step, self.folder / LAST
        signum = self._signals.received or signal.SIGTERM
        if step > self._saved_step and step > 0:
            self._save(trainer, numbered=numbered)
        self._signals.hand_over()
        if step == 0:
            raise Preempted(
                f"{signum.name}: stopped before the end of the first step, so there is nothing to "
                "save; the same command starts again.",
                signum,
            )
        raise Preempted(
            f"{signum.name}: saved step {step} to {last}; run the same command again to go on.",
            signum,
        )

    # --- saving --------------------------------------------------------------------------------

    def _due(self, step: int) -> bool:
        return step % self.every_n_steps == 0 and step != self._saved_step

    def _improved(self, trainer: L.Trainer) -> bool:
        if self.monitor is None or self.monitor not in trainer.callback_metrics:
            return False
        value = float(trainer.callback_metrics[self.monitor])
        if self.best_value is not None and not value < self.best_value:
            return False
        self.best_value, self.best_step = value, trainer.global_step
        return True

    def _save(
        self, trainer: L.Trainer, best: bool = False, last: bool = True, numbered: bool = True
    ) -> None:
        """Saves once and shares the file among its names.

        best.ckpt comes first: a kill in between then costs nothing, because the steps since the
        older last.ckpt are done again and arrive at the same best.
        """
        step = trainer.global_step
        for logger in trainer.loggers:
            logger.save()
        names = [BEST] if best else []
        if last:
            names += [f"step-{step}.ckpt"] if numbered and self.keep_last else []
            names += [LAST]
            self._saved_step = step
        first, *others = (self.folder / name for name in names)
        trainer.save_checkpoint(first, weights_only=False)
        if trainer.is_global_zero:
            for other in others:
                share_file(first, other)
            if last:
                self._drop_old(step)
        trainer.strategy.barrier("StepCheckpoint._save")

    def _drop_old(self, now: int) -> None:
        """Keeps the newest step files; those after ``now`` are of a part that was taken back."""
        files = {int(m[1]): p for p in self.folder.iterdir() if (m := _NUMBERED.match(p.name))}
        taken_back = [step for step in files if step > now]
        past = sorted(step for step in files if step <= now)
        for step in [*taken_back, *past[: -self.keep_last or None]]:
            files[step].unlink()


_NUMBERED = re.compile(r"^step-(\d+)\.ckpt$")


def lacks_validation(
    checkpoint: dict[str, Any], val_check_interval: Any, accumulate_grad_batches: int
) -> bool:
    """Whether a validation belongs to the checkpoint's step, and the run was stopped before it.

    Args:
        checkpoint: as it was saved.
        val_check_interval: micro-batches between two validations.
        accumulate_grad_batches: micro-batches per step.
    """
    step = checkpoint["global_step"]
    states = [
        state
        for state in checkpoint.get("callbacks", {}).values()
        if isinstance(state, dict) and "validated_step" in state
    ]
    due = isinstance(val_check_interval, int) and val_check_interval > 0
    due = due and step * accumulate_grad_batches % val_check_interval == 0
    return bool(due and states and states[0]["validated_step"] < step)


def _in_training(trainer: L.Trainer) -> bool:
    return trainer.state.fn == "fit" and not trainer.sanity_checking


def _validation_due(trainer: L.Trainer) -> bool:
    """Whether validation follows the batch that was just done."""
    if not trainer.enable_validation or not isinstance(trainer.val_check_batch, int):
        return False
    loop = trainer.fit_loop
    over_epochs = trainer.check_val_every_n_epoch is None
    done = (loop.total_batch_idx if over_epochs else loop.batch_idx) + 1
    return done > 0 and done % trainer.val_check_batch == 0


def _validate_now(trainer: L.Trainer) -> None:
    """Runs the validation that belongs to the restored step."""
    trainer.validating = True
    trainer.fit_loop.epoch_loop.val_loop.run()
    trainer.training = True

"""Training, validation and checkpoints of a Lightning module, whatever its loss is.

* random numbers are a function of (seed, micro-step, rank), so resuming is exact
* the averaged weights are validated, and stored with the checkpoint
* a step whose loss or gradient is not finite raises before it touches the weights
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import hydra.utils
import lightning as L
import torch
from lightning.pytorch.strategies import FSDPStrategy
from torch import Tensor, nn

from lkf_plugin.errors import UserError
from lkf_plugin.train.ema import ExponentialMovingAverage
from lkf_plugin.train.finite import gradient_norm, require_finite
from lkf_plugin.train.loops import pin_progress
from lkf_plugin.train.metrics import Extra, Reported, WeightedMeans, likelihood
from lkf_plugin.train.optimizer import build_optimizer
from lkf_plugin.train.seeding import seed_position
from lkf_plugin.train.sharded import ShardedStrategy, in_shards, shard, whole


class TrainingModule(L.LightningModule):
    """Everything around ``_compute_loss``.

    Subclasses set ``backbone`` and ``noise``, call ``_start_average``, and define
    ``_compute_loss``, which adds to ``valid_means`` outside training.

    Args:
        config: the composed config.
    """

    backbone: nn.Module
    noise: nn.Module

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.ema: ExponentialMovingAverage | None = None
        self.valid_means = WeightedMeans()
        self.val_nll, self.val_bpd, self.val_ppl = Reported(), Reported(), Reported()
        self._step_losses: list[Tensor] = []
        self.pause: Callable[[], None] = _go_on  # asked between long parts; may raise

    def _weights(self) -> Iterator[nn.Parameter]:
        return itertools.chain(self.backbone.parameters(), self.noise.parameters())

    def _start_average(self) -> None:
        """Begins ``ema`` at the present weights, if ``training.ema`` asks for one."""
        decay = self.config.training.ema
        self.ema = ExponentialMovingAverage(self._weights(), decay) if decay > 0 else None

    def _compute_loss(self, batch: Mapping[str, Tensor], prefix: str) -> Tensor:
        """Loss of a batch, 0-dim."""
        raise NotImplementedError

    def log_extras(self, prefix: str) -> Mapping[str, Extra]:
        """Scalars of the latest loss to be logged beside it, by name without a prefix.

        Over a validation they are averaged, each weighted by the number of sequences; a pair
        (value, weight) brings its own weight. Subclasses override this.
        """
        return {}

    def _after_validation(self) -> None:
        """Called with the averaged weights still in place."""

    # --- training ------------------------------------------------------------------------------

    def configure_model(self) -> None:
        """Shards the weights where the strategy asks for it; the average begins anew as shards."""
        if isinstance(self.trainer.strategy, ShardedStrategy):
            shard(self, self.trainer.strategy.device_mesh["data_parallel"])
            self._start_average()

    def on_train_start(self) -> None:
        """Brings the averages to the device."""
        if self.ema is not None:
            self.ema.move_shadow_params_to_device(self.device)

    def training_step(self, batch: Mapping[str, Tensor], batch_idx: int) -> Tensor:
        """One micro-batch, seeded by its number in the whole run."""
        micro_step = self.trainer.fit_loop.total_batch_idx
        seed_position(self.config.seed, "train", micro_step, self.global_rank)
        loss = self._compute_loss(batch, "train")
        self._step_losses.append(loss.detach())
        whole_step = len(self._step_losses) == self.trainer.accumulate_grad_batches
        if whole_step and self._logs_this_step():
            mean = torch.stack(self._step_losses).mean()
            self.log("trainer/loss", mean, prog_bar=True, sync_dist=True)
            extras = {f"train/{k}": _value(v) for k, v in self.log_extras("train").items()}
            self.log_dict(extras, sync_dist=True)
        return loss

    def _logs_this_step(self) -> bool:
        every = self.config.trainer.log_every_n_steps
        return every > 0 and (self.trainer.global_step + 1) % every == 0

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """One gradient norm for three uses: the guard, the log and the clipping.

        Raises:
            NonFiniteError: before the optimizer touches the weights.
        """
        weights = [w for w in self._weights() if w.requires_grad]
        sharded = isinstance(self.trainer.strategy, FSDPStrategy)
        if sharded:  # only the wrapper sees all shards; it measures and clips at once
            wrapper: Any = self.trainer.strategy.model
            norm = wrapper.clip_grad_norm_(gradient_clip_val or math.inf)
        else:
            norm = whole(gradient_norm(weights))
        losses, self._step_losses = self._step_losses, []
        if self.trainer.scaler is None:  # float16's loss scaler skips such steps by itself
            require_finite(torch.stack(losses).mean(), norm, self.trainer.global_step + 1)
        if self._logs_this_step():
            self.log("trainer/grad_norm", norm)
        if gradient_clip_val and not sharded:
            torch.nn.utils.clip_grads_with_norm_(weights, gradient_clip_val, norm)

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """A step, then its weights enter the average."""
        super().optimizer_step(*args, **kwargs)
        if self.ema is not None:
            self.ema.update(self._weights())

    def configure_optimizers(self) -> Any:
        """Optimizer by ``optim``, schedule by ``lr_scheduler``, stepped every optimizer step."""
        named = itertools.chain(self.backbone.named_parameters(), self.noise.named_parameters())
        optimizer = build_optimizer(named, self.config.optim)
        schedule = hydra.utils.instantiate(self.config.lr_scheduler, optimizer=optimizer)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step", "name": "trainer/lr"},
        }

    # --- validation ----------------------------------------------------------------------------

    def _enter_ema(self) -> None:
        in_shards(self)
        if self.ema is not None:
            self.ema.move_shadow_params_to_device(self.device)
            self.ema.store(self._weights())
            self.ema.copy_to(self._weights())
        self.backbone.eval()

    def _leave_ema(self) -> None:
        in_shards(self)
        if self.ema is not None:
            self.ema.restore(self._weights())

    def on_validation_epoch_start(self) -> None:
        """Validation sees the averaged weights."""
        self.valid_means.reset()
        self._enter_ema()

    def validation_step(self, batch: Mapping[str, Tensor], batch_idx: int) -> None:
        """One batch, with the same random numbers at each validation of each model.

        They go by the number of the batch among those of all processes.
        """
        number = batch_idx * self.trainer.world_size + self.global_rank
        seed_position(self.config.seed, "valid", number, 0)
        self._compute_loss(batch, "val")

    def on_validation_epoch_end(self) -> None:
        """Logs the means over all tokens of all processes, and draws samples if asked to."""
        means = self.valid_means.compute()
        forms = likelihood(means.pop("nll"))
        self.val_nll.update(forms["nll"])
        self.val_bpd.update(forms["bpd"])
        self.val_ppl.update(forms["ppl"])
        self.log_dict({"val/nll": self.val_nll, "val/bpd": self.val_bpd, "val/ppl": self.val_ppl})
        self.log_dict({f"val/{name}": value for name, value in means.items()})
        self._after_validation()
        self._leave_ema()

    def abandon_validation(self) -> None:
        """Brings the trained weights back in the middle of a validation."""
        self._leave_ema()

    # --- checkpoints ---------------------------------------------------------------------------

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Adds the averages; loop counters become those of a finished step."""
        if self.ema is not None:
            checkpoint["ema"] = self.ema.state_dict()
        pin_progress(checkpoint, self.trainer.accumulate_grad_batches)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restores the averages.

        Raises:
            UserError: the checkpoint has none.
        """
        if self.ema is None:
            return
        if "ema" not in checkpoint:
            raise UserError("The checkpoint holds no weight average: set training.ema=0 to use it.")
        self.ema.load_state_dict(checkpoint["ema"])


def _go_on() -> None:
    """Nobody wants the run to stop."""


def _value(extra: Extra) -> Tensor | float:
    return extra[0] if isinstance(extra, tuple) else extra

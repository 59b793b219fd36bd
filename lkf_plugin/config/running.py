"""``trainer``, ``loader``, ``checkpointing``, ``strategy``: where and in what portions it runs."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from lkf_plugin.settings.fields import (
    Choice,
    Count,
    FieldType,
    Flag,
    Group,
    MaybePath,
    Number,
    Path,
    TargetName,
    Whole,
    as_number,
)

CPU, CUDA = "cpu", ("cuda", "gpu")
HALF = {"bf16-mixed": "bfloat16", "bf16": "bfloat16", "16-mixed": "float16", "16": "float16"}
SINGLE = ("32-true", "32")
TRAINED_IN = (*SINGLE, *HALF, "64-true", "64", "bf16-true", "16-true")  # Lightning's names
OWN_ARGUMENTS = {  # of Lightning's Trainer, which the run sets itself
    "callbacks": "callbacks",
    "logger": "logger",
    "strategy": "strategy",
    "default_root_dir": "run_dir",
    "use_distributed_sampler": None,
    "enable_model_summary": None,
}


class Limit(FieldType):
    """A number of batches, or a share of them."""

    def words(self) -> str:
        return "a whole number of batches, or a share of all of them from 0.0 to 1.0"

    def __call__(self, value: Any) -> int | float:
        number = as_number(value)
        if number < 0 or isinstance(number, float) and number > 1:
            raise ValueError(self.words())
        return number


class Precision(FieldType):
    """Lightning's names, as a number, too (``trainer.precision=32``)."""

    def words(self) -> str:
        return Choice(*TRAINED_IN).words()

    def __call__(self, value: Any) -> str:
        name = str(value)
        if isinstance(value, bool) or name not in TRAINED_IN:
            raise ValueError(self.words())
        return name


class Trainer(Group):
    """Lightning's Trainer; its further arguments may be added by ``+trainer.name=value``."""

    model_config = ConfigDict(extra="allow", frozen=True)

    target: TargetName = Field(alias="_target_")
    max_steps: Count
    accelerator: Annotated[str, Choice(CPU, *CUDA, "auto")]
    devices: Count
    num_nodes: Count
    precision: Annotated[str, Precision()]
    accumulate_grad_batches: Count
    gradient_clip_val: Annotated[float | None, Number(low=0, null=True)]
    val_check_interval: Annotated[float, Number(low=0, open_low=True)]
    check_val_every_n_epoch: Annotated[int | None, Number(low=1, whole=True, null=True)]
    num_sanity_val_steps: Annotated[int, Number(low=-1, whole=True)]
    log_every_n_steps: Whole
    limit_train_batches: Annotated[float, Limit()]
    limit_val_batches: Annotated[float, Limit()]


class Loader(Group):
    """Batches; sizes are per device where they do not say ``global``."""

    global_batch_size: Count
    batch_size: Count
    eval_global_batch_size: Count
    eval_batch_size: Count
    num_workers: Whole
    pin_memory: Flag


class Checkpointing(Group):
    """When and where a run is saved, and from what it goes on."""

    save_dir: Path
    every_n_steps: Count
    keep_last: Whole
    resume_from_ckpt: Flag
    resume_ckpt_path: MaybePath


class Strategy(Group):
    """Lightning's strategy, built by Hydra."""

    model_config = ConfigDict(extra="allow", frozen=True)
    target: TargetName = Field(alias="_target_")

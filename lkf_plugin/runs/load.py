"""A trained run back from its folder, ready to decode: for scripts and notebooks."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from lkf_plugin.config import register_resolvers
from lkf_plugin.data import PreparedData
from lkf_plugin.decode.network import DecodeNetwork
from lkf_plugin.decode.policy import Decoded
from lkf_plugin.decode.sample import joined, sample_numbers, share
from lkf_plugin.errors import UserError
from lkf_plugin.processes import ALONE, Processes
from lkf_plugin.runs.common import build_module, load_weights
from lkf_plugin.runs.evaluated import open_checkpoint, prepare_in_its_tokenizer, say_loaded
from lkf_plugin.runs.settings import load_settings


@dataclass
class LoadedRun:
    """A run's module with averaged weights in evaluation mode.

    Attributes:
        config: the settings that the run was trained with.
        module: the Lightning module.
        prepared: its data.
        checkpoint: the file that was loaded.
        step: its optimizer step.
    """

    config: DictConfig
    module: Any
    prepared: PreparedData
    checkpoint: Path
    step: int | None

    def network(self) -> DecodeNetwork:
        """The model as decoding asks it, as it is: nothing compiled."""
        module = self.module
        return DecodeNetwork(module.backbone, module.noise, module._process_sigma)

    def sample(
        self,
        settings: Mapping[str, Any],
        num_steps: int,
        num_samples: int,
        seed: int,
        batch_size: int = 64,
        progress: str | None = None,
        processes: Processes = ALONE,
    ) -> Decoded:
        """The first samples under a seed, on the CPU, on every process.

        Args:
            settings, num_steps, seed, batch_size, progress: see ``decode.sample.sample_numbers``.
            num_samples: how many.
            processes: each draws consecutive ones.
        """
        start_L = self.module._sample_prior(1, self.config.model.length)[0].to(self.module.device)
        numbers = share(num_samples, processes.rank, processes.count)
        own = None
        if numbers:  # there may be more processes than samples
            own = sample_numbers(
                self.module, start_L, settings, seed, numbers, num_steps, batch_size, progress
            )
        return joined([part for part in processes.gathered(own) if part is not None])


def settings_of_run(folder: str | Path, checkpoint: str | None = None) -> DictConfig:
    """A run's settings as an evaluation of its best (else last) checkpoint, or the one named.

    >>> run = load_run(folder)  # what `python main.py run_dir=FOLDER ...` has trained
    loaded step ... of ...best.ckpt: averaged weights ...
    >>> decode = {"policy": "best_of_m", "score_draws": 1}
    >>> decoded = run.sample(decode, num_steps=4, num_samples=3, seed=0)
    >>> texts = run.prepared.tokenizer.batch_decode(decoded.x_GL)
    >>> len(texts), "[MASK]" in " ".join(texts)
    (3, False)

    Args:
        folder: a ``run_dir``.
        checkpoint: a file in place of the best one.

    Raises:
        UserError: no such run.
    """
    register_resolvers()
    settings = load_settings(Path(folder))
    if settings is None:
        raise UserError(f"{folder} is no run folder: it has no config.yaml.")
    config = OmegaConf.create(settings)
    with open_dict(config):
        config.mode = "sample_eval"
        config.eval.checkpoint_path = checkpoint or ""
        config.checkpointing.save_dir = str(folder)
    return config


def load_run(folder: str | Path, device: str = "cpu", checkpoint: str | None = None) -> LoadedRun:
    """Loads the best (else the last) checkpoint of a run folder, or the one named.

    Raises:
        UserError: no such run, or a checkpoint that does not fit it.
    """
    config = settings_of_run(folder, checkpoint)
    opened = open_checkpoint(config)
    prepared = prepare_in_its_tokenizer(config, opened)
    module = build_module(config, prepared.tokenizer)
    step = load_weights(module, opened.path, opened.checkpoint)["step"]
    say_loaded(opened, module, config)
    use_average(module)
    module.to(device)
    return LoadedRun(config, module, prepared, opened.path, step)


def use_average(module: Any) -> None:
    """Puts the weight average, if there is one, in the weights' place; evaluation mode."""
    if module.ema is not None:
        weights = itertools.chain(module.backbone.parameters(), module.noise.parameters())
        module.ema.copy_to(weights)
    module.eval()

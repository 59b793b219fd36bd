"""A trained run back from its folder, ready to decode: for scripts and notebooks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf, open_dict
from torch import Tensor

from lkf_plugin.config import register_resolvers
from lkf_plugin.data import PreparedData, prepare
from lkf_plugin.decode.engine import RolloutEngine
from lkf_plugin.decode.network import DecodeNetwork
from lkf_plugin.decode.noise import mix
from lkf_plugin.decode.policy import DecodeRequest
from lkf_plugin.errors import UserError
from lkf_plugin.runs.common import build_module, find_checkpoint, load_weights
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

    def request(
        self,
        num_samples: int,
        num_steps: int,
        seed: int,
        prompt_L: Tensor | None = None,
        temperature: float = 1.0,
    ) -> DecodeRequest:
        """``num_samples`` samples of J steps; sample g is a function of (seed, g)."""
        engine = RolloutEngine(self.network(), num_steps, self.config.sampling.eps, temperature)
        device = next(self.module.backbone.parameters()).device
        if prompt_L is None:
            prompt_L = torch.full((self.config.model.length,), self.module.mask_index)
        start_GL = prompt_L.to(device).expand(num_samples, -1)
        return DecodeRequest(engine, start_GL, mix(seed, torch.arange(num_samples, device=device)))


def load_run(folder: str | Path, device: str = "cpu", checkpoint: str | None = None) -> LoadedRun:
    """Loads the best (else the last) checkpoint of a run folder, or the one named.

    Raises:
        UserError: no such run, or a checkpoint that does not fit it.
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
    prepared = prepare(config, splits=("valid",))
    module = build_module(config, prepared.tokenizer)
    path = find_checkpoint(config)
    step = load_weights(module, path)["step"]
    if module.ema is not None:
        module.ema.copy_to(module._weights())
    module.eval().to(device)
    return LoadedRun(config, module, prepared, path, step)

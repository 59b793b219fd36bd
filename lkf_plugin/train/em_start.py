"""``init.latents=em``: a law of the latents, fitted once, kept in the run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_only
from omegaconf import DictConfig

from lkf_plugin.data import PreparedData
from lkf_plugin.errors import UserError
from lkf_plugin.files import write_atomically
from lkf_plugin.latents.em import ContextFreeLaw, fit
from lkf_plugin.latents.structure import Structure
from lkf_plugin.objective.warm_up import WarmUp

FILE = "latents.pt"
WINDOWS = 3000  # training windows that EM sees
TAG = "lkf-latents-1"


def warm_up_of(config: DictConfig, module: Any, prepared: PreparedData) -> WarmUp | None:
    """The warm-up that a configuration asks for, None where it asks for none.

    A run that goes on takes the law that lies in its folder; without one it is fitted again, from
    the same seed and windows.

    Raises:
        UserError: the file is damaged.
    """
    if config.init.get("latents") is None:
        return None
    structure = module.backbone.structure
    path = Path(config.run_dir) / FILE
    law = _read(path, structure) if path.exists() else None
    if law is None:
        law = _fit(config, structure, prepared)
        _keep(law, path)
    return WarmUp(law, int(config.init.latents_steps), module.objective)


def _fit(config: DictConfig, structure: Structure[Any], prepared: PreparedData) -> ContextFreeLaw:
    rows = prepared.train
    assert rows is not None
    generator = torch.Generator().manual_seed(int(config.seed))
    picks = torch.randperm(len(rows), generator=generator)[:WINDOWS].sort().values
    x_NL = torch.as_tensor(rows[picks.tolist()]["input_ids"]).long()
    # where nothing is visible, a trunk without absolute positions says the same everywhere
    everywhere = config.model.trunk == "matched"
    period = 1 if everywhere else structure.blocks.block_length or x_NL.shape[1]
    law = fit(
        structure, x_NL, prepared.vocab_size, period=period, tied=everywhere, seed=int(config.seed)
    )
    nats = -law.log_prob(x_NL).mean().item() / x_NL.shape[1]
    _say(f"init.latents=em: {nats:.4f} nats per token on {len(x_NL)} training windows")
    return law


@rank_zero_only
def _say(sentence: str) -> None:
    print(sentence, flush=True)


@rank_zero_only
def _keep(law: ContextFreeLaw, path: Path) -> None:
    parts = [*law.potentials, law.log_emission_PVM]
    write_atomically(path, lambda target: torch.save({TAG: parts}, target))


def _read(path: Path, structure: Structure[Any]) -> ContextFreeLaw:
    try:
        *parts, log_emission_PVM = torch.load(path, weights_only=True)[TAG]
        kind = type(structure.uniform(1, 2))
        return ContextFreeLaw(structure, kind(*parts), log_emission_PVM)
    except Exception as error:
        raise UserError(f"{path} is damaged: delete it, and the law is fitted again.") from error

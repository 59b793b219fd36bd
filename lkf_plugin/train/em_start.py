"""``init.latents=em``: a law of the latents, fitted once, kept in the run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_only
from omegaconf import DictConfig
from torch import Tensor

from lkf_plugin.data import PreparedData
from lkf_plugin.errors import UserError
from lkf_plugin.files import write_atomically
from lkf_plugin.latents.em import ContextFreeLaw, fit
from lkf_plugin.latents.structure import Structure
from lkf_plugin.objective.warm_up import WarmUp

FILE = "latents.pt"
WINDOWS = 3000  # training windows that EM sees
HELD_OUT = 4  # of the windows, every so many
STARTS, APART = 4, 1000  # of EM, and how far their seeds lie apart
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
        law = fitted_law(config, structure, prepared)
        x_NL = training_windows(config, prepared)
        nats = -law.log_prob(x_NL).mean().item() / x_NL.shape[1]
        _say(f"init.latents=em: {nats:.4f} nats per token on {len(x_NL)} training windows")
        _keep(law, path)
    return WarmUp(law, int(config.init.latents_steps), module.objective)


def training_windows(config: DictConfig, prepared: PreparedData) -> Tensor:
    """The training windows that EM sees, [N, L]: picked by the seed."""
    rows = prepared.train
    assert rows is not None
    generator = torch.Generator().manual_seed(int(config.seed))
    picks = torch.randperm(len(rows), generator=generator)[:WINDOWS].sort().values
    return torch.as_tensor(rows[picks.tolist()]["input_ids"]).long()


def fitted_law(
    config: DictConfig, structure: Structure[Any], prepared: PreparedData
) -> ContextFreeLaw:
    """The law of a structure that fits a run's training windows, in what its trunk can tell apart.

    Where nothing is visible, a trunk without absolute positions says the same everywhere; one with
    them may have a law for each place of a block, or for each position, whichever fits windows
    better that it has not seen. One start of EM in four ends in a local optimum on AgreeText, so
    that the best of a few is taken.
    """
    x_NL = training_windows(config, prepared)
    everywhere = config.model.trunk == "matched"
    seeds = range(int(config.seed), int(config.seed) + STARTS * APART, APART)

    def fitted(x_NL: Tensor, period: int, seed: int) -> ContextFreeLaw:
        vocab_size = prepared.vocab_size
        return fit(structure, x_NL, vocab_size, period=period, tied=everywhere, seed=seed)

    length = x_NL.shape[1]
    period = 1 if everywhere else structure.blocks.block_length or length
    if not everywhere and period < length:
        unseen_N = torch.arange(len(x_NL)) % HELD_OUT == 0
        fits = {p: fitted(x_NL[~unseen_N], p, seeds[0]) for p in (period, length)}
        period = max(fits, key=lambda p: fits[p].log_prob(x_NL[unseen_N]).mean().item())
    laws = [fitted(x_NL, period, seed) for seed in seeds]
    return max(laws, key=lambda law: law.log_prob(x_NL).mean().item())


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

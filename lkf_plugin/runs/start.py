"""Whether a run may start from the weights of another, or go on from its own."""

from __future__ import annotations

from omegaconf import DictConfig

from lkf_plugin.checkpoint_file import local_file, read_checkpoint
from lkf_plugin.data import PreparedData
from lkf_plugin.errors import UserError
from lkf_plugin.methods.method import NONE, given_name
from lkf_plugin.ranks import is_first
from lkf_plugin.runs.identity import (
    Card,
    card_of_settings,
    compare,
    make_card,
    network_of,
    read_card,
)
from lkf_plugin.runs.resume import Resume, check_card
from lkf_plugin.runs.settings import check_resume, plain
from lkf_plugin.runs.tokenizer import tokenizer_card

# A mixture starts from a factorised network: its latent is new. T only weighs the objective.
_NEW_IN_A_MIXTURE = (
    "method.name",
    "network.type",
    "network.trunk",
    "network.num_components",
    "network.latent",
    "network.block_components",
    "network.block_length",
    "network.latent_blocks",
    "network.latent_site",
    "network.router_reads",
    "process.T",
)


def check_start(config: DictConfig, prepared: PreparedData) -> None:
    """Refuses weights of another network, process or tokenizer than the settings'.

    Raises:
        UserError: not there, damaged, or the first option that differs with both values; or nothing
            here starts from a checkpoint.
    """
    _check_teacher(config, prepared)
    source = config.init.from_checkpoint
    if not source:
        return
    mixture = given_name(config) == NONE
    if mixture and config.model.type != "lkf":
        raise UserError(
            "init.from_checkpoint starts a mixture (model=lkf) or a baseline: leave it out, or "
            "choose one of these."
        )
    path = local_file(source, "init.from_checkpoint")
    card = read_card(read_checkpoint(path), path)
    name = str(config.data.tokenizer_name_or_path)
    now = card_of_settings(plain(config))
    now["tokenizer"] = tokenizer_card(prepared.tokenizer, name)
    new = _NEW_IN_A_MIXTURE if mixture and not _as_many(card, now) else ("process.T",)
    unknown = compare(card or {}, now, path, new)
    if mixture and card:  # a factorised network has no options of a latent
        unknown = [key for key in unknown if not key.startswith("model.")]
    if unknown and is_first():
        print(f"{path} does not tell its {', '.join(unknown)}: not compared", flush=True)


def _as_many(card: Card | None, now: Card) -> bool:
    """Whether a checkpoint is a mixture of the components that the settings ask for.

    Latents per block beside those of a sequence are more of them.
    """
    keys = ("num_components", "latent", "block_components")
    parts = (network_of(one or {}) for one in (card, now))
    old, new = ([part.get(key) for key in keys] for part in parts)
    return old == new and old[0] != 1


def _check_teacher(config: DictConfig, prepared: PreparedData) -> None:
    """A teacher has its student's network, process and tokenizer; its method is its own affair."""
    source = config.method.get("teacher")
    if not source:
        return
    path = local_file(source, "method.teacher")
    card = read_card(read_checkpoint(path), path)
    now = card_of_settings(plain(config))
    now["tokenizer"] = tokenizer_card(prepared.tokenizer, str(config.data.tokenizer_name_or_path))
    compare(card or {}, now, path, free=("method", "process.T"))


def check_run(config: DictConfig, prepared: PreparedData, resume: Resume) -> None:
    """Refuses to go on with another network, other settings or other data, on either host.

    Raises:
        UserError: names what differs.
    """
    card = read_card(resume.checkpoint, resume.path) or {}
    check_resume(config, prepared.digest, resume.path, resume.step, card.get("data"))
    check_card(config, resume)


def card_of(config: DictConfig, prepared: PreparedData) -> Card:
    """What the run's checkpoints say of themselves."""
    name = str(config.data.tokenizer_name_or_path)
    return make_card(config, tokenizer_card(prepared.tokenizer, name), prepared.digest)

"""What a checkpoint says of itself: the card that it carries beside the weights.

A card is a plain dictionary of four parts that decide what the weights compute (``method``,
``network``, ``process``, ``tokenizer``), the digest of the training ``data``, and the package's
``version``. Options that only start or speed up training are left out, and so is the length, of
which no part of a network without position weights is a function. Any other option of ``model``
counts, also one that leaves every shape as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from lkf_plugin.errors import UserError
from lkf_plugin.methods.method import NONE

CARD = "lkf_card"  # its key in a checkpoint
FORMAT = 1
COMPARED = ("method", "network", "process", "tokenizer")

# Options of ``model`` that leave the function of given weights as it is.
_START_OR_SPEED = (
    "name",
    "length",
    "dropout",
    "latent_emb_std",
    "latent_film_std",
    "sticky",
    "open_gates",
    "local_heads",
    "activation_checkpointing",
    "compile_blocks",
)
# What a card of a latent-kernel network means that does not say it.
ONE_LATENT: dict[str, Any] = {"latent": "sequence", "block_components": 1, "block_length": None}
USUAL_PLACES: dict[str, Any] = {"latent_site": "block", "router_reads": "shared_blocks"}
_PROCESS = ("parameterization", "diffusion", "backbone", "time_conditioning", "subs_masking", "T")
# Of ``method``: what the first token is decides what an autoregressive network was trained for.
_METHOD = ("start",)
_TOKENIZER_KEY = "data.tokenizer_name_or_path"

Card = dict[str, Any]


def network_card(model: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the network, by their names in the ``model`` group.

    One latent per sequence, one in the whole block, and a router before it go without saying, as in
    cards that knew no other.
    """
    card = {str(k): v for k, v in model.items() if k not in _START_OR_SPEED}
    if card.get("latent") == ONE_LATENT["latent"]:
        card = {k: v for k, v in card.items() if k not in ONE_LATENT}
    return {k: v for k, v in card.items() if (k, v) not in USUAL_PLACES.items()}


def network_of(card: Card) -> dict[str, Any]:
    """The network's options of a card, those that go without saying too."""
    network: dict[str, Any] = card.get("network") or {}
    return {**ONE_LATENT, **USUAL_PLACES, **network} if network.get("type") == "lkf" else network


def card_of_settings(settings: Mapping[str, Any]) -> Card:
    """The parts of a card that settings decide.

    Args:
        settings: a whole configuration as plain containers, without interpolations.
    """
    baseline = settings.get("method") or {}
    name = baseline.get("name", NONE)
    if name == NONE:
        name = "lkf" if settings["model"].get("type") == "lkf" else "mdlm"
    process = {key: settings[key] for key in _PROCESS if key in settings}
    process["noise"] = (settings.get("noise") or {}).get("type")
    return {
        "format": FORMAT,
        "method": {"name": name, **{k: baseline[k] for k in _METHOD if k in baseline}},
        "network": network_card(settings["model"]),
        "process": process,
    }


def make_card(config: DictConfig, tokenizer: Mapping[str, Any], data_digest: str) -> Card:
    """The card of a run.

    Args:
        config: its configuration.
        tokenizer: what ``runs.tokenizer.tokenizer_card`` says of its tokenizer.
        data_digest: of its prepared data.
    """
    from lkf_plugin import __version__

    settings = OmegaConf.to_container(config, resolve=True)
    assert isinstance(settings, dict)
    card = card_of_settings({str(key): value for key, value in settings.items()})
    card |= {"tokenizer": dict(tokenizer), "data": data_digest, "version": __version__}
    return card


def read_card(checkpoint: Mapping[str, Any], path: object) -> Card | None:
    """The card inside a checkpoint, or None in one that was made without.

    Raises:
        UserError: it is damaged, or of a later version of this package.
    """
    card = checkpoint.get(CARD)
    if card is None:
        return None
    parts = isinstance(card, dict) and all(isinstance(card.get(p, {}), dict) for p in COMPARED)
    if not parts or not isinstance(card.get("format"), int):
        raise UserError(f"{path} does not say what it is ({CARD} is damaged): take another one.")
    if card["format"] > FORMAT:
        raise UserError(
            f"{path} was written by lkf {card.get('version')}, which says more of a checkpoint "
            "than this version understands: update this package."
        )
    return card


def compare(card: Card, now: Card, path: object, free: tuple[str, ...] = ()) -> list[str]:
    """Refuses settings that contradict a checkpoint's card.

    Args:
        card: the checkpoint's; parts and options that it lacks are not compared.
        now: the card of the present settings.
        path: of the checkpoint, for the message.
        free: options that may differ, as ``part.option``; a whole part by its name.

    Returns:
        What could not be compared, because one of the two does not say it.

    Raises:
        UserError: names the first option that differs and both values.
    """
    unknown = []
    for part in COMPARED:
        if part in free:
            continue
        of_network = part == "network"
        old, new = (network_of(c) if of_network else c.get(part) or {} for c in (card, now))
        if part == "tokenizer":
            unknown += _compare_tokenizers(old, new, path)
            continue
        if not old or not new:
            unknown.append(part)
            continue
        for option in sorted(old.keys() | new.keys()):
            if f"{part}.{option}" in free:
                continue
            if option not in old or option not in new:
                unknown.append(_key(part, option))
            elif old[option] != new[option]:
                if (part, option) == ("method", "name"):
                    raise UserError(
                        f"{path} was trained by the method {old[option]}, and the settings "
                        f"describe {new[option]}: give model and method as its run did."
                    )
                key = _key(part, option)
                raise UserError(
                    f"{key} is {_word(old[option])} in {path} and {_word(new[option])} in the "
                    f"settings: set {key}={_word(old[option])}, or take another checkpoint."
                )
    return unknown


def _compare_tokenizers(old: Mapping[str, Any], new: Mapping[str, Any], path: object) -> list[str]:
    if not old.get("digest") or not new.get("digest"):
        return ["tokenizer"]
    if old["digest"] != new["digest"]:
        raise UserError(
            f"{path} was trained with the tokenizer {tokenizer_words(old)}, and "
            f"{_TOKENIZER_KEY} gives {tokenizer_words(new)}: set {_TOKENIZER_KEY} to the run's "
            "tokenizer, which lies in the folder `tokenizer` of its run."
        )
    return []


def tokenizer_words(tokenizer: Mapping[str, Any]) -> str:
    """``name (V entries, digest 0123456789ab)``."""
    digest = str(tokenizer.get("digest"))[:12]
    return f"{tokenizer.get('name')} ({tokenizer.get('vocab_size')} entries, digest {digest})"


def _word(value: Any) -> str:
    """As a configuration writes it."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _key(part: str, option: str) -> str:
    """The configuration's key of an option."""
    if part == "network":
        return f"model.{option}"
    if part == "method":
        return f"method.{option}"
    return "noise.type" if option == "noise" else option

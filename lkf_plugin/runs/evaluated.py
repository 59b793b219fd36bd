"""What an evaluation opens: a checkpoint that says what it is, and data in its tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from transformers import PreTrainedTokenizerBase

from lkf_plugin.checkpoint_file import local_file, read_checkpoint
from lkf_plugin.data import PreparedData, prepare
from lkf_plugin.data.options import absolute
from lkf_plugin.errors import UserError
from lkf_plugin.ranks import is_first
from lkf_plugin.runs.identity import (
    Card,
    card_of_settings,
    compare,
    read_card,
    tokenizer_words,
)
from lkf_plugin.runs.settings import load_record, load_settings, plain
from lkf_plugin.runs.tokenizer import FOLDER, tokenizer_card, tokenizer_of
from lkf_plugin.train.checkpoint import BEST, LAST

_TRAINED = "train"  # data.tokenizer_name_or_path that trains one on the text


@dataclass(frozen=True)
class OpenCheckpoint:
    """A checkpoint, read once.

    Attributes:
        path: the file.
        checkpoint: its contents.
        card: what it, or its run's settings, say of it; empty where nothing does.
    """

    path: Path
    checkpoint: dict[str, Any]
    card: Card

    @property
    def step(self) -> int | None:
        """Its optimizer step, where it says so."""
        return self.checkpoint.get("global_step")


def find_checkpoint(config: DictConfig) -> Path:
    """The checkpoint to evaluate: ``eval.checkpoint_path``, else the run's best, else its last.

    Raises:
        UserError: it is not there, or no local file.
    """
    given = config.eval.checkpoint_path
    if given:
        path = local_file(given, "eval.checkpoint_path")
        if not path.is_file():
            raise UserError(f"There is no checkpoint at eval.checkpoint_path={given}.")
        return path
    folder = local_file(config.checkpointing.save_dir, "checkpointing.save_dir") / "checkpoints"
    for name in (BEST, LAST):
        if (folder / name).is_file():
            return folder / name
    raise UserError(f"There is no checkpoint in {folder}: train first or set eval.checkpoint_path.")


def open_checkpoint(config: DictConfig) -> OpenCheckpoint:
    """Reads the checkpoint to evaluate and compares what it says of itself with the settings.

    One that was written without a card is compared with the settings in its run folder.

    Raises:
        UserError: not there, damaged, or of another method, network or process: names the option
            and both values.
    """
    path = find_checkpoint(config)
    checkpoint = read_checkpoint(path)
    card = read_card(checkpoint, path)
    if card is None:
        settings = load_settings(path.parent.parent)
        card = {} if settings is None else card_of_settings(settings)
    unknown = compare(card, card_of_settings(plain(config)), path, free=("tokenizer",))
    if unknown:
        _say(f"{path} does not tell its {_listed(unknown)}: not compared with the settings")
    return OpenCheckpoint(path, checkpoint, card)


def prepare_in_its_tokenizer(
    config: DictConfig, opened: OpenCheckpoint, splits: Sequence[str] = ("valid",)
) -> PreparedData:
    """The data of an evaluation, encoded with the tokenizer that the checkpoint was trained with.

    Raises:
        UserError: the settings name another tokenizer, or the data has one of its own.
    """
    path, card = opened.path, opened.card
    if not (card.get("tokenizer") or {}).get("digest"):
        return _prepare_unsure(config, opened, splits)
    own, known = tokenizer_of(path, card), card["tokenizer"]
    named = str(config.data.tokenizer_name_or_path)
    theirs = own if named in (_TRAINED, known["name"]) else None
    prepared = prepare(config, splits, theirs)
    compare(
        {"tokenizer": known},
        {"tokenizer": tokenizer_card(prepared.tokenizer, named)},
        path,
        free=("method", "network", "process"),
    )
    if card.get("data") not in (None, prepared.digest):
        words = tokenizer_words(known)
        _say(f"this text is not the run's; it is encoded with the run's tokenizer, {words}")
    return prepared


def _prepare_unsure(
    config: DictConfig, opened: OpenCheckpoint, splits: Sequence[str]
) -> PreparedData:
    """Data for a checkpoint that does not tell its tokenizer.

    The digest of the data that its run folder notes finds the tokenizer in the cache, or says that
    the data, and so the tokenizer, is the run's.
    """
    digest = load_record(opened.path.parent.parent).get("data_digest")
    tokenizer = None
    if digest and str(config.data.tokenizer_name_or_path) == _TRAINED:
        tokenizer = _cached_tokenizer(absolute(config.data.cache_dir), str(digest))
    prepared = prepare(config, splits, tokenizer)
    if prepared.digest == digest:
        return prepared
    if tokenizer is not None:
        _say("this text is not the run's; it is encoded with the run's tokenizer, from the cache")
    else:
        _say(
            f"{opened.path} does not tell its tokenizer, so "
            f"{config.data.tokenizer_name_or_path} could not be compared with it"
        )
    return prepared


def _cached_tokenizer(cache: Path, digest: str) -> PreTrainedTokenizerBase | None:
    from lkf_plugin.data.tokenizer import load_tokenizer

    for folder in sorted((cache / "prepared").glob(f"*-{digest[:16]}/{FOLDER}")):
        try:
            return load_tokenizer(str(folder))
        except UserError:
            continue
    return None


def say_loaded(opened: OpenCheckpoint, module: Any, config: DictConfig) -> None:
    """One line: which step, the average or the raw weights, and in which float type."""
    ema = module.ema
    weights = "raw weights" if ema is None else f"averaged weights (EMA {ema.decay:g})"
    parameter = next(module.backbone.parameters())
    dtype = str(parameter.dtype).removeprefix("torch.")
    step = "" if opened.step is None else f"step {opened.step} of "
    _say(f"loaded {step}{opened.path}: {weights}, {dtype}, computed in {config.trainer.precision}")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)


def _say(sentence: str) -> None:
    if is_first():
        print(sentence, flush=True)

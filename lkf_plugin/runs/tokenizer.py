"""A run's tokenizer: kept beside its checkpoints, and taken from there by evaluations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from lkf_plugin.data.store import write_atomically
from lkf_plugin.data.tokenizer import (
    BUILT_IN,
    has_files,
    load_tokenizer,
    token_ids,
    tokenizer_digest,
)
from lkf_plugin.errors import UserError
from lkf_plugin.runs.identity import Card, tokenizer_words

FOLDER = "tokenizer"  # in a run folder
SUFFIX = ".tokenizer"  # of the folder beside an imported checkpoint


def tokenizer_card(tokenizer: PreTrainedTokenizerBase, name: str) -> dict[str, Any]:
    """What a checkpoint says of its tokenizer.

    Args:
        tokenizer: it.
        name: how the settings name it; the digest tells what it does.
    """
    ids = token_ids(tokenizer)
    return {
        "digest": tokenizer_digest(tokenizer),
        "name": name,
        "vocab_size": ids.vocab_size,
        "mask": ids.mask,
    }


def keep_tokenizer(tokenizer: PreTrainedTokenizerBase, target: Path) -> None:
    """Saves a tokenizer's files as the folder ``target``; one without is known by its name.

    Raises:
        UserError: something else is there already.
    """
    if not has_files(tokenizer):
        return
    if target.is_dir():
        if _kept(target, tokenizer_digest(tokenizer)) is not None:
            return
        raise UserError(
            f"{target} is damaged or holds another tokenizer than this one's: delete that folder, "
            "and it is written anew."
        )

    def save(path: Path) -> None:
        tokenizer.save_pretrained(path)

    write_atomically(target, save)


def tokenizer_of(checkpoint: Path, card: Card) -> PreTrainedTokenizerBase | None:
    """The tokenizer that a checkpoint was trained with, from beside it; None if it is not there.

    It is looked for beside the checkpoint, where an import puts it, and in its run folder.

    Raises:
        UserError: the files there are damaged or of another tokenizer.
    """
    known = card.get("tokenizer") or {}
    if not known.get("digest"):
        return None
    if known.get("name") in BUILT_IN:
        return load_tokenizer(known["name"])
    places = (checkpoint.with_suffix(SUFFIX), checkpoint.parent / FOLDER)
    for folder in (*places, checkpoint.parent.parent / FOLDER):
        if not folder.is_dir():
            continue
        tokenizer = _kept(folder, known["digest"])
        if tokenizer is None:
            raise UserError(
                f"{folder} is damaged or holds another tokenizer than {checkpoint} was trained "
                f"with, {tokenizer_words(known)}: bring the run's own files back."
            )
        return tokenizer
    return None


def _kept(folder: Path, digest: str) -> PreTrainedTokenizerBase | None:
    """The tokenizer in a folder if it is the one of the digest."""
    try:
        tokenizer = load_tokenizer(str(folder))
    except UserError:
        return None
    return tokenizer if tokenizer_digest(tokenizer) == digest else None

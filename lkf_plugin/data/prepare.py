"""One deterministic preparation for every corpus, cached by a digest of all that matters."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from omegaconf import DictConfig
from transformers import PreTrainedTokenizerBase

from lkf_plugin.data import store
from lkf_plugin.data.blocks import blocks_of, progress
from lkf_plugin.data.corpus import (
    CORPORA,
    TRAIN,
    Corpus,
    CorpusSettings,
    Documents,
    TextSettings,
)
from lkf_plugin.data.hashing import value_digest
from lkf_plugin.data.layout import Block
from lkf_plugin.data.options import absolute, read_options
from lkf_plugin.data.tokenizer import (
    TokenIds,
    complete,
    has_files,
    load_tokenizer,
    token_ids,
    tokenizer_digest,
)
from lkf_plugin.data.train_tokenizer import train_tokenizer
from lkf_plugin.errors import UserError
from lkf_plugin.files import write_atomically

# Raise it when the same options give other arrays than before.
FORMAT = 1
SPLITS = ("train", "valid")
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class PreparedData:
    """A tokenized corpus and what its ids mean.

    Attributes:
        tokenizer: The tokenizer, with BOS, EOS and padding filled in.
        tokenizer_path: What to set ``data.tokenizer_name_or_path`` to: a saved folder, or the
            name of a tokenizer without files.
        mask_index: Id of the mask, inside the vocabulary (BERT: 103) or last (GPT-2: 50257).
        vocab_size: V, the mask counted.
        bos_index: Id of BOS.
        eos_index: Id of EOS.
        pad_index: Id of padding; never the mask's, for GPT-2 the same as EOS.
        train: ``input_ids`` and ``attention_mask`` [L] in torch format; None if not asked for.
        valid: The same, held out.
        folder: The cache folder of this digest: ``data.cache_dir`` for MDLM's own loader.
        digest: SHA-256 of everything that decides the arrays.
        manifest: The contents of ``folder/manifest.json``.
        framed: Whether a sequence begins with BOS and ends with EOS.
    """

    tokenizer: PreTrainedTokenizerBase
    tokenizer_path: str
    mask_index: int
    vocab_size: int
    bos_index: int
    eos_index: int
    pad_index: int | None
    train: datasets.Dataset | None
    valid: datasets.Dataset | None
    folder: Path
    digest: str
    manifest: dict[str, Any]
    framed: bool


def prepare(
    config: DictConfig,
    splits: Sequence[str] = SPLITS,
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> PreparedData:
    """Tokenizes the corpus of ``config.data`` at ``config.model.length``, or finds it done.

    Processes that call this at the same time share the work of the first.

    Args:
        config: The whole configuration.
        splits: Which splits to make; an evaluation needs no ``train``.
        tokenizer: A run's own, in place of the one that the options name; a corpus that brings one
            along keeps that.

    Returns:
        The prepared data.

    Raises:
        UserError: Something about the options, the corpus or the tokenizer is wrong.
    """
    settings, length = read_options(config)
    root = absolute(settings.cache_dir)
    corpus = CORPORA[settings.kind].from_settings(settings, length, root)
    own = corpus.own_tokenizer(settings)
    if own is not None:
        tokenizer = complete(own, settings.kind)
    elif tokenizer is None:
        tokenizer = _open_tokenizer(settings, corpus, root)
    ids = token_ids(tokenizer)
    covers = {
        "format": FORMAT,
        "kind": settings.kind,
        "name": settings.train,
        "options": settings.covered(),
        "corpus": corpus.fingerprint(),
        "tokenizer": tokenizer_digest(tokenizer),
        "length": length,
        "wrap": settings.wrap,
    }
    digest = value_digest(covers)
    folder = root / "prepared" / f"{settings.train}-L{length}-{digest[:16]}"
    done = store.load_splits(folder, splits)
    if done is None:
        with store.single_writer(folder):
            done = store.load_splits(folder, splits)
            if done is None:
                _make(folder, settings, corpus, tokenizer, length, splits, covers)
                done = store.load_splits(folder, splits)
    assert done is not None
    manifest, loaded = done
    return PreparedData(
        tokenizer=tokenizer,
        tokenizer_path=str(folder / "tokenizer")
        if has_files(tokenizer)
        else settings.tokenizer_name_or_path,
        mask_index=ids.mask,
        vocab_size=ids.vocab_size,
        bos_index=ids.bos,
        eos_index=ids.eos,
        pad_index=ids.pad,
        **{
            split: loaded[split].with_format("torch") if split in loaded else None
            for split in SPLITS
        },
        folder=folder,
        digest=digest,
        manifest=manifest,
        framed=isinstance(corpus, Documents) and not settings.in_windows,
    )


def _make(
    folder: Path,
    settings: CorpusSettings,
    corpus: Corpus,
    tokenizer: PreTrainedTokenizerBase,
    length: int,
    splits: Sequence[str],
    covers: dict[str, Any],
) -> None:
    """Writes the splits that are not there yet; the manifest lists what is whole.

    What cannot be prepared leaves nothing; what was interrupted leaves its whole splits.
    """
    ids = token_ids(tokenizer)
    manifest = store.read_manifest(folder)
    if "splits" not in manifest:
        manifest = {"digest": value_digest(covers), "covers": covers, "vocab_size": ids.vocab_size}
        manifest |= {"ids": {key: getattr(ids, key) for key in ("mask", "bos", "eos", "pad")}}
        manifest |= {"splits": {}}
    began = bool(manifest["splits"])
    try:
        if has_files(tokenizer) and not (folder / "tokenizer").is_dir():
            save = tokenizer.save_pretrained
            write_atomically(folder / "tokenizer", lambda path: _discard(save(path)))
        for split in splits:
            if split not in manifest["splits"]:
                name = store.split_file(settings.train, split, length, settings.wrap)
                counts = _write(folder / name, settings, corpus, tokenizer, ids, split, length)
                manifest["splits"][split] = {"file": name, **counts}
                store.write_manifest(folder, manifest)
    except BaseException as error:
        hopeless = isinstance(error, UserError) and not began
        if hopeless or not manifest["splits"]:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _discard(_: object) -> None:
    """Turns a function's result into none."""


def _open_tokenizer(
    settings: CorpusSettings, corpus: Corpus, root: Path
) -> PreTrainedTokenizerBase:
    if settings.tokenizer_name_or_path != TRAIN:
        return load_tokenizer(settings.tokenizer_name_or_path)
    if not isinstance(settings, TextSettings) or not isinstance(corpus, Documents):
        raise UserError(
            f"No tokenizer can be trained on data.kind={settings.kind}: name one in "
            "data.tokenizer_name_or_path."
        )
    return _trained_tokenizer(settings, corpus, root)


def _trained_tokenizer(
    settings: TextSettings, corpus: Documents, root: Path
) -> PreTrainedTokenizerBase:
    """A tokenizer trained on the corpus, now or before; the layout means nothing to it."""
    plain = {"layout": "mdlm", "stride": None, "drop_digit_windows": False}
    covers = {
        "format": FORMAT,
        "kind": settings.kind,
        "options": settings.model_copy(update=plain).covered(),
        "corpus": corpus.fingerprint(),
        "type": settings.tokenizer_type,
        "vocab_size": settings.vocab_size,
    }
    if settings.tokenizer_characters is not None:
        covers["characters"] = settings.tokenizer_characters
    folder = root / "tokenizers" / f"{settings.tokenizer_type}-{value_digest(covers)[:16]}"
    if (kept := _kept_tokenizer(folder)) is not None:
        return kept
    with store.single_writer(folder):
        if (kept := _kept_tokenizer(folder)) is not None:
            return kept

        def texts() -> Iterable[str]:
            return progress(corpus.documents("train"), "Training tokenizer")

        made = train_tokenizer(
            texts, settings.tokenizer_type, settings.vocab_size, settings.tokenizer_characters
        )
        write_atomically(folder, lambda path: _discard(made.save_pretrained(path)))
    return load_tokenizer(str(folder))


def _kept_tokenizer(folder: Path) -> PreTrainedTokenizerBase | None:
    """The tokenizer trained before; a damaged one is thrown away, to be trained again."""
    if not folder.is_dir():
        return None
    try:
        return load_tokenizer(str(folder))
    except UserError as error:
        _LOG.warning("Training the tokenizer again: %s", error)
        shutil.rmtree(folder, ignore_errors=True)
        return None


def _write(
    target: Path,
    settings: CorpusSettings,
    corpus: Corpus,
    tokenizer: PreTrainedTokenizerBase,
    ids: TokenIds,
    split: str,
    length: int,
) -> dict[str, int]:
    """Writes one split and gives its counts."""
    counts = {"documents": 0, "document_tokens": 0, "sequences": 0, "tokens": 0}
    blocks = blocks_of(corpus, split, settings, tokenizer, length, counts)
    if target.exists():  # left by a process that was killed before it wrote the manifest
        shutil.rmtree(target)
    checked = _checked(blocks, ids, counts)
    first = next(checked, None)
    if first is None:
        raise _too_short(settings, split, length, counts)
    store.write_split(target, _chain(first, checked), length, ids.vocab_size)
    _LOG.info("Prepared %s of %s: %s", split, settings.train, counts)
    return counts


def _chain(first: Block, rest: Iterator[Block]) -> Iterator[Block]:
    yield first
    yield from rest


def _checked(blocks: Iterable[Block], ids: TokenIds, counts: dict[str, int]) -> Iterator[Block]:
    """Passes blocks on, counts them, and refuses ids that the model cannot hold."""
    for ids_BL, mask_BL in blocks:
        top = int(ids_BL.max())
        if top >= ids.vocab_size:
            raise UserError(
                f"The tokenizer gives the id {top} but counts only {ids.vocab_size} entries: "
                "tokens added after training must be merged into its vocabulary."
            )
        if np.any(ids_BL == ids.mask):
            raise UserError(
                f"The corpus holds the mask token (id {ids.mask}), which cannot be learned: remove "
                "it from the text."
            )
        counts["sequences"] += len(ids_BL)
        counts["tokens"] += int(mask_BL.sum(dtype=np.int64))
        yield ids_BL, mask_BL


def _too_short(
    settings: CorpusSettings, split: str, length: int, counts: dict[str, int]
) -> UserError:
    if counts["documents"] == 0:
        return UserError(f"The {split} part of data.kind={settings.kind} has no documents.")
    what = "no window" if settings.in_windows else "not one full sequence"
    return UserError(
        f"The {split} part of the corpus ({counts['documents']} documents, "
        f"{counts['document_tokens']} tokens) gives {what} of model.length={length}: give more "
        "text or lower model.length."
    )

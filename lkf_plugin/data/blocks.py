"""From a corpus to blocks of sequences: documents are encoded and laid out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from lkf_plugin.data.corpus import Corpus, CorpusSettings, Documents, Sequences, TextSettings
from lkf_plugin.data.layout import Block, Encoded, unwrapped, windows, wrapped
from lkf_plugin.data.survey import pieces
from lkf_plugin.data.tokenizer import ids_with_characters, make_encoder, token_ids
from lkf_plugin.progress import bar

_AT_ONCE = 500_000  # characters that are encoded together


def blocks_of(
    corpus: Corpus,
    split: str,
    settings: CorpusSettings,
    tokenizer: PreTrainedTokenizerBase,
    length: int,
    counts: dict[str, int],
) -> Iterator[Block]:
    """The sequences of a split.

    Args:
        corpus: Text or ready sequences.
        split: ``train`` or ``valid``.
        settings: Of the corpus.
        tokenizer: For text.
        length: L.
        counts: ``documents`` and ``document_tokens`` are added to as text is encoded.
    """
    if isinstance(corpus, Sequences):
        return corpus.blocks(split)
    assert isinstance(corpus, Documents)
    texts = progress(corpus.documents(split), f"Tokenizing {settings.train} {split}")
    encode = make_encoder(tokenizer, with_starts=settings.in_windows)
    documents = _encode_all(texts, encode, counts)
    if isinstance(settings, TextSettings) and settings.in_windows:
        bad = ids_with_characters(tokenizer, "0123456789$%")
        stride = settings.stride if split == "train" else None
        return windows(documents, length, stride, bad if settings.drop_digit_windows else None)
    ids = token_ids(tokenizer)
    if settings.wrap:
        return wrapped(documents, length, ids.bos, ids.eos)
    return unwrapped(documents, length, ids.bos, ids.eos, ids.pad)


def progress(items: Iterable[Any], title: str) -> Iterable[Any]:
    """The items, counted before somebody's eyes."""
    return bar(items, title, " documents", keep=True)


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

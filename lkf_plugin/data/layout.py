"""From token streams to sequences of one length.

Shapes: B rows of a block, L positions. A block is a pair ``(ids_BL, mask_BL)`` of int32 and int8
arrays; the mask is 1 where a position counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

Block = tuple[np.ndarray, np.ndarray]
_ROWS_PER_BLOCK = 4096


@dataclass(frozen=True)
class Encoded:
    """A document's tokens and, where asked for, which of them start a word (bool, same shape)."""

    ids: np.ndarray
    starts: np.ndarray | None = None


def _full(ids_BL: np.ndarray) -> Block:
    return ids_BL, np.ones(ids_BL.shape, dtype=np.int8)


def wrapped(documents: Iterable[Encoded], length: int, bos: int, eos: int) -> Iterator[Block]:
    """Packs documents without padding (MDLM, ``_group_texts``).

    An EOS follows each document; all are concatenated and cut into pieces of ``length - 2``, each
    put between BOS and EOS; what remains is dropped. MDLM does this in batches of 1000 documents
    and so drops a remainder a batch; here the whole split is one stream. MDLM's BERT wrapping also
    puts CLS where EOS belongs; here EOS is the id of ``eos_token``, else of ``sep_token``.
    """
    inner = length - 2
    pending: list[np.ndarray] = []
    held = 0

    def cut() -> tuple[np.ndarray, np.ndarray]:
        stream = np.concatenate(pending)
        rows = len(stream) // inner
        ids_BL = np.empty((rows, length), dtype=np.int32)
        ids_BL[:, 0], ids_BL[:, -1] = bos, eos
        ids_BL[:, 1:-1] = stream[: rows * inner].reshape(rows, inner)
        return ids_BL, stream[rows * inner :]

    end = np.array([eos], dtype=np.int32)
    for document in documents:
        pending += [document.ids.astype(np.int32, copy=False), end]
        held += len(document.ids) + 1
        if held >= _ROWS_PER_BLOCK * inner:
            ids_BL, rest = cut()
            yield _full(ids_BL)
            pending, held = [rest], len(rest)
    if held >= inner:
        yield _full(cut()[0])


def unwrapped(
    documents: Iterable[Encoded], length: int, bos: int, eos: int, pad: int
) -> Iterator[Block]:
    """One sequence per document: BOS, its first ``length - 2`` tokens, EOS, padding on the right.

    For BERT these are the rows of ``tokenizer(text, padding="max_length", truncation=True)``. The
    mask is 1 on tokens, BOS and EOS, 0 on padding.
    """
    rows: list[np.ndarray] = []

    def pack() -> Block:
        ids_BL = np.full((len(rows), length), pad, dtype=np.int32)
        mask_BL = np.zeros((len(rows), length), dtype=np.int8)
        for row, tokens in enumerate(rows):
            n = len(tokens)
            ids_BL[row, 0], ids_BL[row, 1 : n + 1], ids_BL[row, n + 1] = bos, tokens, eos
            mask_BL[row, : n + 2] = 1
        return ids_BL, mask_BL

    for document in documents:
        rows.append(document.ids[: length - 2])
        if len(rows) == _ROWS_PER_BLOCK:
            yield pack()
            rows.clear()
    if rows:
        yield pack()


def windows(
    documents: Iterable[Encoded],
    length: int,
    stride: int | None = None,
    forbidden_V: np.ndarray | None = None,
) -> Iterator[Block]:
    """Windows of ``length`` tokens that start at a word and stay inside one document.

    The first starts at the document's first word; the next at the first word that begins at least
    ``stride`` tokens later (default: ``length``, so that windows do not overlap).

    Args:
        documents: Tokens with word starts.
        length: L.
        stride: Least distance of two starts, in tokens.
        forbidden_V: True for token ids that a window must not hold; such windows are dropped.
    """
    step = length if stride is None else stride
    for document in documents:
        assert document.starts is not None
        starts = np.flatnonzero(document.starts)
        chosen = []
        position = 0
        while True:
            at = np.searchsorted(starts, position)
            if at == len(starts) or starts[at] + length > len(document.ids):
                break
            chosen.append(int(starts[at]))
            position = chosen[-1] + step
        if not chosen:
            continue
        ids_BL = np.stack([document.ids[c : c + length] for c in chosen]).astype(np.int32)
        if forbidden_V is not None:
            ids_BL = ids_BL[~forbidden_V[ids_BL].any(axis=1)]
        if len(ids_BL):
            yield _full(ids_BL)

"""A prompt with gaps as the ids that a rollout starts from, framed as training windows are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from lkf_plugin.data.options import absolute
from lkf_plugin.data.prepare import PreparedData
from lkf_plugin.data.reading import text_lines
from lkf_plugin.data.tokenizer import make_encoder, token_ids
from lkf_plugin.errors import UserError

GAP = "[MASK]"
_KEY = "sampling.prompt"


class Frame(NamedTuple):
    """What stands around the text of a training sequence.

    Attributes:
        framed: It begins with BOS, and EOS follows its text.
        full: Sequences are packed to the end, so that EOS is always in the last place.
    """

    framed: bool
    full: bool


def frame_of(prepared: PreparedData, data: Any) -> Frame:
    """The frame that data and its settings (group ``data``) give a sequence."""
    return Frame(prepared.framed, bool(data["wrap"]))


def prompt_ids(
    given: str, tokenizer: PreTrainedTokenizerBase, length: int, framed: bool, full: bool
) -> Tensor:
    """Ids [L] of a prompt; each ``[MASK]`` stands for one token, and so does what is left of L.

    Args:
        given: A text, or the path of a text file.
        tokenizer: A completed tokenizer.
        length: L.
        framed: Training sequences begin with BOS: so does the prompt, and its last place is EOS's.
        full: Training sequences are packed to the end, so that EOS is always in the last place.

    Raises:
        UserError: The file does not exist or is no text; the prompt is empty, too long or without
            a gap; it holds a special word of the tokenizer or what this has no token for.
    """
    text = _prompt_text(given)
    _refuse_special_words(text, tokenizer)
    ids = token_ids(tokenizer)
    joined = _blanks_begin_words(tokenizer)
    filled: list[int] = []
    parts = text.split(GAP)
    for number, piece in enumerate(parts):
        if number:
            filled.append(ids.mask)
        if joined and number < len(parts) - 1:
            piece = piece.rstrip(" ")  # the word in the gap brings the blank before it
        if piece.strip(" "):
            filled += _encoded(piece, tokenizer)
    room = length - 2 if framed else length
    if len(filled) > room:
        raise UserError(
            f"{_KEY} has {len(filled)} tokens, more than model.length={length}"
            f"{' less two for BOS and EOS' if framed else ''}: shorten it."
        )
    if len(filled) == room and ids.mask not in filled:
        raise UserError(f"{_KEY} leaves nothing to fill: put {GAP} where words are missing.")
    ids_L = torch.full((length,), ids.mask)
    start = 1 if framed else 0
    ids_L[start : start + len(filled)] = torch.tensor(filled, dtype=ids_L.dtype)
    if framed:
        ids_L[0] = ids.bos
        if full:
            ids_L[-1] = ids.eos
    return ids_L


def _prompt_text(given: str) -> str:
    """The text itself, or that of the file; what looks like a path has to be one."""
    path = absolute(given) if given.strip() else Path()
    if given.strip() and os.path.isfile(path):
        text = "".join(text_lines(path)).strip("\n")
    elif _looks_like_path(given):
        raise UserError(
            f"{_KEY}={given} looks like a file and there is none (looked for {path}): correct the "
            f"path, or write {GAP} into the text if it is the prompt."
        )
    else:
        text = given.strip("\n")
    if not text.strip():
        raise UserError(f"{_KEY} is empty: give a text with {GAP} gaps, or null for none.")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UserError(f"{_KEY} holds bytes that are no UTF-8 text: correct them.") from error
    return text


def _looks_like_path(given: str) -> bool:
    if GAP in given or "\n" in given:
        return False
    word = given.strip()
    has_slash = "/" in word or "\\" in word
    return word.lower().endswith(".txt") or (has_slash and len(word.split()) == 1)


def _refuse_special_words(text: str, tokenizer: PreTrainedTokenizerBase) -> None:
    """A special word such as ``[SEP]`` would become an id that no sample shows again.

    Only words in brackets count: AgreeText's full stop is its EOS and an ordinary word, too.
    """
    for word in tokenizer.all_special_tokens:
        in_brackets = word[:1] in "[<" and word[-1:] in "]>" and len(word) > 2
        if in_brackets and word != GAP and word in text:
            raise UserError(
                f"{_KEY} holds {word}, a special word of the tokenizer: take it out; a gap is "
                f"written {GAP}."
            )


def _blanks_begin_words(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether tokens hold the blank before their word (byte pairs do, characters do not)."""
    return any(len(token) > 1 and token[0] in "\u0120\u2581 " for token in tokenizer.get_vocab())


def _encoded(piece: str, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Ids of a text, as the corpus was encoded."""
    try:
        ids = make_encoder(tokenizer, with_starts=False)([piece])[0].ids.tolist()
    except Exception as error:  # the engine's own kind, for a word that it has no token for
        raise _unknown(piece) from error
    if tokenizer.unk_token_id is not None and tokenizer.unk_token_id in ids:
        raise _unknown(piece)
    return ids


def _unknown(piece: str) -> UserError:
    return UserError(
        f"{_KEY} holds something in {piece.strip()[:60]!r} that the tokenizer has no token for: "
        "use words or letters of the training text."
    )

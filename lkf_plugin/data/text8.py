"""``text8``: 27 characters, MDLM's ids, and the raw files it is read from."""

from __future__ import annotations

import hashlib
import string
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from transformers import PreTrainedTokenizer
from typing_extensions import Self

from lkf_plugin.data.corpus import CORPORA, CorpusSettings, Documents, Full, OptionalPath
from lkf_plugin.data.hashing import value_digest
from lkf_plugin.data.options import absolute
from lkf_plugin.data.reading import text_lines
from lkf_plugin.errors import UserError
from lkf_plugin.files import write_atomically
from lkf_plugin.settings.fields import Choice

# The host is not sure to speak TLS: the digest says whether it is the archive.
URL = "http://mattmahoney.net/dc/text8.zip"
ARCHIVE_SHA256 = "a6640522afe85d1963ad56c05b0ede0a0c000dddc9671758a6cc09b7a38e5232"
SPECIALS = ("[CLS]", "[SEP]", "[BOS]", "[EOS]", "[MASK]", "[PAD]", "[RESERVED]", "[UNK]")
SYMBOLS = (*SPECIALS, *string.ascii_lowercase, " ")
_SPLITS = ("train", "validation", "test")
# Where D3PM, and MDLM after it, cut the hundred million characters.
_CUTS = {"train": (0, 90_000_000), "validation": (90_000_000, 95_000_000)}
_CUTS["test"] = (95_000_000, 100_000_000)


class Text8Tokenizer(PreTrainedTokenizer):
    """One token per character, lower-cased; 35 entries, mask 4 (MDLM, ``Text8Tokenizer``).

    It has no files: save and load it by its name ``text8``.
    """

    def __init__(self, **kwargs: Any) -> None:
        self._id_of = {symbol: index for index, symbol in enumerate(SYMBOLS)}
        names = {f"{s[1:-1].lower()}_token": s for s in SPECIALS if s != "[RESERVED]"}
        super().__init__(**{**names, **kwargs})

    @property
    def vocab_size(self) -> int:
        return len(SYMBOLS)

    def get_vocab(self) -> dict[str, int]:
        return dict(self._id_of)

    def _tokenize(self, text: str, **kwargs: Any) -> list[str]:
        return [*text.lower()]

    def _convert_token_to_id(self, token: str) -> int:
        return self._id_of.get(token, self._id_of["[UNK]"])

    def _convert_id_to_token(self, index: int) -> str:
        return SYMBOLS[index]

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        return "".join(tokens)

    def save_vocabulary(self, *args: Any, **kwargs: Any) -> tuple[str, ...]:
        return ()


def encode_characters(text: str) -> np.ndarray:
    """Ids [n] of a text's characters by table look-up: what the tokenizer gives, but fast."""
    table = np.full(256, SYMBOLS.index("[UNK]"), dtype=np.int32)
    for index, symbol in enumerate(SYMBOLS):
        if len(symbol) == 1:
            table[ord(symbol)] = index
    # A character outside Latin-1 becomes '?', which is not in the table either: [UNK].
    codes = np.frombuffer(text.lower().encode("latin-1", "replace"), dtype=np.uint8)
    return table[codes]


class Text8Settings(CorpusSettings):
    """Where the characters are, and what is held out."""

    tokenizer_name_or_path: Annotated[str, Choice("text8")]
    wrap: Annotated[bool, Full()] = True
    path: OptionalPath = None
    valid_split: Annotated[str, Choice("validation", "test")] = "validation"

    elsewhere: ClassVar[tuple[str, ...]] = ("path",)


@CORPORA.add("text8")
class Text8Corpus(Documents):
    """The splits of text8, cut into documents of ``length`` characters, the last part dropped.

    MDLM treats such pieces as its documents (an EOS follows each); so does this, in order that
    likelihoods compare.

    Args:
        path: Folder with ``text8.{train,validation,test}.txt``, ``text8.zip`` or ``text8``.
        length: Characters in a document.
        valid_split: ``test`` (MDLM's choice) or ``validation``.
    """

    Settings = Text8Settings

    def __init__(self, path: Path, length: int, valid_split: str) -> None:
        self.path = path
        self.length = length
        self.valid_split = valid_split
        self._texts: dict[str, str] | None = None

    @classmethod
    def from_settings(cls, settings: Text8Settings, length: int, cache: Path) -> Self:
        folder = absolute(settings.path) if settings.path else cache / "text8" / "raw_data"
        return cls(folder, length, settings.valid_split)

    def _read(self) -> dict[str, str]:
        if self._texts is None:
            self._texts = read_text8(self.path)
        return self._texts

    def fingerprint(self) -> dict[str, Any]:
        """Digest of the characters themselves, wherever they were read from."""
        return {"text8": {split: value_digest(text) for split, text in self._read().items()}}

    def documents(self, split: str) -> Iterator[str]:
        """Yields the documents of ``train`` or ``valid``."""
        text = self._read()["train" if split == "train" else self.valid_split]
        if not text:
            raise UserError(f"The text8 file in {self.path} is too short to have a {split} split.")
        for start in range(0, len(text) - self.length + 1, self.length):
            yield text[start : start + self.length]


def read_text8(folder: Path) -> dict[str, str]:
    """Reads the three splits, downloading the archive into ``folder`` if nothing is there.

    Raises:
        UserError: There are no files and they cannot be downloaded.
    """
    parts = {split: folder / f"text8.{split}.txt" for split in _SPLITS}
    if all(part.is_file() for part in parts.values()):
        return {split: "".join(text_lines(part)) for split, part in parts.items()}
    plain, archive = folder / "text8", folder / "text8.zip"
    if plain.is_file():
        text = "".join(text_lines(plain))
    else:
        if not archive.is_file():
            _download(archive)
        try:
            with zipfile.ZipFile(archive) as opened:
                text = opened.read("text8").decode("utf-8")
        except (zipfile.BadZipFile, KeyError, UnicodeDecodeError) as error:
            raise UserError(f"{archive} is not the text8 archive: delete it and retry.") from error
    return {split: text[start:stop] for split, (start, stop) in _CUTS.items()}


def _download(target: Path) -> None:

    def fetch(scratch: Path) -> None:
        with scratch.open("wb") as out, urllib.request.urlopen(URL, timeout=30) as source:
            digest = hashlib.sha256()
            while chunk := source.read(1 << 20):
                digest.update(chunk)
                out.write(chunk)
        if digest.hexdigest() != ARCHIVE_SHA256:
            raise UserError(
                f"{URL} gave another archive than text8 (SHA-256 {digest.hexdigest()[:12]}, not "
                f"{ARCHIVE_SHA256[:12]}): put the right text8.zip into {target.parent}, or set "
                "data.path to a folder that has it."
            )

    try:
        write_atomically(target, fetch)
    except (urllib.error.URLError, OSError) as error:
        raise UserError(
            f"text8 is not in {target.parent} and {URL} cannot be reached: put text8.zip there, or "
            "set data.path to a folder that has it."
        ) from error

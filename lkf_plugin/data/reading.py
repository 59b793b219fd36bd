"""Lines of text files, whatever their encoding and compression; what does not fit, by its place."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lkf_plugin.errors import UserError

ERROR_POLICIES = ("refuse", "replace", "skip_file")
_CHUNK = 1 << 20


class UnfitText(UserError):
    """A file holds what its encoding cannot mean: the policy ``skip_file`` leaves it out."""


@dataclass(frozen=True)
class TextFormat:
    """How bytes are read as text.

    Attributes:
        encoding: A codec of Python's, for example ``utf-8`` or ``latin-1``.
        errors: What to do with bytes that do not fit it: ``refuse``, ``replace`` (each becomes
            U+FFFD) or ``skip_file``, which the caller has to carry out.
    """

    encoding: str = "utf-8"
    errors: str = "refuse"

    @property
    def replaces(self) -> bool:
        return self.errors == "replace"

    @property
    def codec(self) -> str:
        """The codec's name; a byte order mark is no part of UTF-8 text."""
        name = codecs.lookup(self.encoding).name
        return "utf-8-sig" if name == "utf-8" else name


UTF8 = TextFormat()


def is_text_encoding(name: str) -> bool:
    """Whether Python knows an encoding of text by that name (``rot13`` and ``zip`` are none)."""
    try:
        "".encode(name)
        return bool(codecs.lookup(name).incrementaldecoder)
    except (LookupError, UnicodeError, ValueError):
        return False


def text_lines(path: Path, form: TextFormat = UTF8) -> Iterator[str]:
    r"""Lines of a plain or gzipped text file, their ends written ``\n`` however the file does.

    Raises:
        UnfitText: Bytes do not fit the encoding, or one is NUL; names file, line and byte.
        UserError: The file cannot be opened or unpacked.
    """
    errors = "replace" if form.replaces else "strict"
    try:
        with _open(path) as raw, io.TextIOWrapper(raw, form.codec, errors) as handle:
            for number, line in enumerate(handle, start=1):
                if "\0" in line:
                    if not form.replaces:
                        raise _nul(path, number)
                    line = line.replace("\0", "\ufffd")
                yield line
    except UnicodeError as error:
        raise UnfitText(_unfit(path, form)) from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(
            f"{path} is not a whole gzip file ({error}): pack it again, or leave it out."
        ) from error
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror or error}).") from error


def _open(path: Path) -> io.BufferedReader | gzip.GzipFile:
    return gzip.GzipFile(path) if path.suffix.lower() == ".gz" else path.open("rb")


def _nul(path: Path, number: int) -> UnfitText:
    return UnfitText(
        f"{path}:{number} holds a NUL byte, so it is no plain text: set data.encoding=utf-16 if it "
        "is that, or data.encoding_errors=skip_file (or replace)."
    )


def _unfit(path: Path, form: TextFormat) -> str:
    """Where the first byte is that does not fit; this reads the file again."""
    decoder = codecs.getincrementaldecoder(form.codec)("strict")
    line, position = 1, 0
    place = "its end"
    with _open(path) as raw:
        while True:
            chunk = raw.read(_CHUNK)
            pending = len(decoder.getstate()[0])
            try:
                text = decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError as error:
                before = error.object[: error.start].decode(form.encoding, "replace")
                at = position - pending + error.start
                place = f"byte {at} (0x{error.object[error.start]:02x})"
                line += before.count("\n")
                break
            except UnicodeError:
                break
            line += text.count("\n")
            position += len(chunk)
            if not chunk:
                break
    return (
        f"{path}:{line} is not {form.encoding} text at {place}: set data.encoding to what it is "
        "(for example latin-1), or data.encoding_errors=replace or skip_file."
    )


def collapse(text: str) -> str:
    """Puts single blanks for runs of white space."""
    return " ".join(text.split())

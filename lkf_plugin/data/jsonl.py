"""Rows of ``.jsonl`` files: one JSON object per line, its text in one field."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lkf_plugin.data.reading import UTF8, TextFormat, UnfitText, text_lines
from lkf_plugin.errors import UserError


def jsonl_rows(path: Path, field: str, form: TextFormat = UTF8) -> Iterator[str]:
    """The texts in one field of a ``.jsonl`` file, as they are; blank lines are none.

    Args:
        path: The file, plain or gzipped.
        field: Name of the field.
        form: Encoding, and what to do with what does not fit it. Half a surrogate pair, which
            JSON can write and no encoding can, counts as such.

    Raises:
        UserError: A line is not JSON or lacks the field; names file and line.
    """
    for number, line in enumerate(text_lines(path, form), start=1):
        if not line.strip():
            continue
        text = _text_of(_parsed(line, path, number), field, path, number)
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            if not form.replaces:
                raise UnfitText(
                    f"{path}:{number} holds half a surrogate pair (\\u{ord(text[error.start]):04x})"
                    ", which is no character: repair the line, or set "
                    "data.encoding_errors=replace or skip_file."
                ) from error
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        yield text


def _parsed(line: str, path: Path, number: int) -> Any:
    try:
        # Numbers are not what is looked for, and very long ones cannot be read as such.
        return json.loads(line, parse_int=_no_number, parse_float=_no_number)
    except RecursionError as error:
        raise UserError(f"{path}:{number} is JSON nested too deeply to be read.") from error
    except json.JSONDecodeError as error:
        raise UserError(
            f"{path}:{number} is not a line of JSON ({error.msg} at column {error.colno}): every "
            "line must be one object on its own."
        ) from error


def _no_number(digits: str) -> float:
    return 0.0


def _text_of(row: Any, field: str, path: Path, number: int) -> str:
    if not isinstance(row, dict):
        raise UserError(
            f"{path}:{number} has no text in field {field} (data.field): it is "
            f"{_kind(row)}, not an object."
        )
    if field not in row:
        names = [name.encode("ascii", "backslashreplace").decode()[:40] for name in row]
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        raise UserError(
            f"{path}:{number} has no text in field {field} (data.field): it has "
            f"{shown or 'no fields'}."
        )
    text = row[field]
    if not isinstance(text, str):
        raise UserError(
            f"{path}:{number} has no text in field {field} (data.field): there is {_kind(text)}."
        )
    return text


def _kind(value: Any) -> str:
    names = {bool: "true or false", float: "a number", list: "a list", dict: "an object"}
    return "null" if value is None else names.get(type(value), "a text")

"""Blocks of a page that a command fills, between ``<!-- table: NAME -->`` and ``<!-- end -->``.

Both markers stand on lines of their own; nothing outside them is touched.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from lkf_plugin.errors import UserError

_MARKER = re.compile(r"^<!-- (?:table: (?P<name>\S+)|end) -->$", re.MULTILINE)


def fill(page: str, blocks: Mapping[str, str]) -> str:
    """The page with the blocks' new content.

    Args:
        page: Markdown with markers.
        blocks: what is to stand in each, by name.

    Raises:
        UserError: a block without its marker, a marker without its partner, or a name that is
            unknown or stands twice.
    """
    pieces: list[str] = []
    seen: set[str] = set()
    name, copied = None, 0
    for marker in _MARKER.finditer(page):
        opens = marker["name"]
        if opens is None:
            if name is None:
                line = page.count("\n", 0, marker.start()) + 1
                raise UserError(f"Line {line}: <!-- end --> closes nothing: remove it.")
            pieces.append(f"\n\n{blocks[name].strip()}\n\n")
            copied, name = marker.start(), None
            continue
        if name is not None:
            raise UserError(_unclosed(name))
        if opens not in blocks:
            known = ", ".join(blocks)
            raise UserError(f"<!-- table: {opens} --> names no table: take one of {known}.")
        if opens in seen:
            raise UserError(f"<!-- table: {opens} --> stands twice: remove one.")
        seen.add(opens)
        pieces.append(page[copied : marker.end()])
        name = opens
    if name is not None:
        raise UserError(_unclosed(name))
    absent = [one for one in blocks if one not in seen]
    if absent:
        raise UserError(
            f"The page lacks <!-- table: {absent[0]} -->: put it and <!-- end --> on lines of "
            "their own where the table is to stand."
        )
    return "".join([*pieces, page[copied:]])


def fill_file(page: Path, blocks: Mapping[str, str]) -> str:
    """Fills a page in place; returns ``filled``, or ``unchanged`` where it showed them already.

    Raises:
        UserError: no such file, or what ``fill`` raises; the file is then as it was.
    """
    if not page.is_file():
        raise UserError(f"{page} is no file: give the page that has the markers.")
    before = page.read_text(encoding="utf-8")
    after = fill(before, blocks)
    page.write_text(after, encoding="utf-8")
    return "unchanged" if after == before else "filled"


def _unclosed(name: str) -> str:
    return f"<!-- table: {name} --> is not closed: put <!-- end --> on a line of its own after it."

"""Which text files a path, a folder or a glob means: each file once, nothing hidden."""

from __future__ import annotations

import fnmatch
import glob
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from lkf_plugin.data.options import absolute
from lkf_plugin.errors import UserError

SUFFIXES = (".txt", ".jsonl", ".txt.gz", ".jsonl.gz")
_NAMES = "a .txt or .jsonl file (or .txt.gz, .jsonl.gz)"
_LOG = logging.getLogger(__name__)


def text_suffix(path: Path) -> str | None:
    """The one of ``SUFFIXES`` that a name ends in, in any case of letters; None for others."""
    name = path.name.lower()
    endings = [suffix for suffix in SUFFIXES if name.endswith(suffix)]
    return max(endings, key=len) if endings else None


def find_files(pattern: str, key: str) -> list[Path]:
    """The text files that a path, a folder or a glob means, in the order of their names.

    Below a folder or a wildcard, files and folders whose name begins with a dot are left out, as
    in a shell; links are followed, but what two paths lead to is taken once. A file or folder that
    is named itself may be hidden.

    Args:
        pattern: As the user wrote it.
        key: Its configuration key, for messages.

    Raises:
        UserError: There are none, or a folder cannot be read.
    """
    path = absolute(pattern)
    if os.path.isfile(path):
        if text_suffix(path) is None:
            raise UserError(f"{key}={pattern} must be {_NAMES}.")
        return [path]
    if os.path.isdir(path):
        candidates = list(_walk(path))
    elif glob.has_magic(pattern):
        candidates = list(_matches(path))
    elif os.path.lexists(path):
        raise UserError(
            f"{key}={pattern} is neither a file nor a folder that can be read (looked at {path})."
        )
    else:
        raise UserError(f"{key}={pattern} does not exist (looked for {path}).")
    named = sorted(path for path in candidates if text_suffix(path))
    files = [path for path in named if os.path.isfile(path)]
    if len(files) < len(named):
        broken = next(path for path in named if not os.path.isfile(path))
        _LOG.warning(
            "%d names that lead to no file are left out, the first of them %s.",
            len(named) - len(files),
            broken,
        )
    files = _each_once(files)
    if not files:
        raise UserError(f"{key}={pattern} has no {_NAMES[2:]}.")
    return files


def _each_once(paths: list[Path]) -> list[Path]:
    """Drops every path but the first that leads, through links, to the same file."""
    first = {os.path.realpath(path): path for path in reversed(paths)}
    return sorted(first.values())


def _walk(root: Path, deepest: int | None = None) -> Iterator[Path]:
    """Files below a folder without hidden ones; a folder reached twice is entered once."""
    entered: set[str] = set()
    waiting = [(root, 0)]
    while waiting:
        folder, depth = waiting.pop()
        real = os.path.realpath(folder)
        if real in entered:
            continue
        entered.add(real)
        try:
            with os.scandir(folder) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            raise UserError(
                f"The folder {folder} cannot be read ({error.strerror}): give the right to read "
                "it, or name another data.path."
            ) from error
        below = []
        for entry in entries:
            if entry.name.startswith("."):
                continue
            path = Path(entry.path)
            if not os.path.isdir(path):  # False, too, for a link in a circle
                yield path
            elif deepest is None or depth < deepest:
                below.append((entry.is_symlink(), path))
        # Last in is first out: real folders by name, and before them none of the links to them.
        waiting += [(path, depth + 1) for _, path in sorted(below, reverse=True)]


def _matches(path: Path) -> Iterator[Path]:
    """Files that an absolute glob means; ``**`` stands for any number of folders."""
    parts = path.parts
    magic = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    root, wanted = Path(*parts[:magic]), parts[magic:]
    if not os.path.isdir(root):
        return
    deepest = None if "**" in wanted else len(wanted) - 1
    for candidate in _walk(root, deepest):
        if _fits(candidate.relative_to(root).parts, wanted):
            yield candidate


def _fits(parts: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    """Whether a path's parts are what a glob's parts ask for."""
    if not wanted:
        return not parts
    if wanted[0] == "**":
        if len(wanted) == 1:
            return bool(parts)
        return any(_fits(parts[start:], wanted[1:]) for start in range(len(parts)))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], wanted[0]) and _fits(parts[1:], wanted[1:])

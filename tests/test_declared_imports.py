"""Every distribution that the package imports is declared in pyproject.toml."""

from __future__ import annotations

import ast
import re
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

tomllib = pytest.importorskip("tomllib")  # Python 3.11

ROOT = Path(__file__).parents[1]
# Optional, tried and done without, or brought by hand with the name of its distribution.
NOT_DECLARED = {"cut_cross_entropy": "cut-cross-entropy", "liger_kernel": "liger-kernel"}
# Where the distribution has another name than the module and may be absent here.
NAMES = {
    "flash_attn": "flash-attn",
    "hydra": "hydra-core",
    "lm_eval": "lm-eval",
    "mauve": "mauve-text",
    "yaml": "pyyaml",
}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def imported() -> dict[str, set[str]]:
    """Top-level modules that are no part of Python or of this repository, and who imports them."""
    own = {"lkf_plugin", "scripts", "tests", "experiments", "benchmarks"}
    modules: dict[str, set[str]] = {}
    for folder in ("lkf_plugin", "scripts", "experiments"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = []
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                    names = [node.module]
                for name in names:
                    modules.setdefault(name.partition(".")[0], set()).add(path.name)
    known = own | set(sys.stdlib_module_names)
    return {name: paths for name, paths in modules.items() if name not in known}


def declared() -> tuple[set[str], set[str]]:
    """Distributions of the core, and those of any extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    def names(entries: list[str]) -> set[str]:
        return {normal(re.split(r"[\[<>=!~; ]", entry)[0]) for entry in entries}

    extras = project["optional-dependencies"].values()
    return names(project["dependencies"]), set().union(*map(names, extras))


def test_every_import_is_declared() -> None:
    core, extra = declared()
    distributions = packages_distributions()
    missing = {}
    for module, paths in imported().items():
        if module in NOT_DECLARED:
            continue
        known = {normal(d) for d in distributions.get(module, [])} | {normal(module)}
        known |= {NAMES[module]} if module in NAMES else set()
        if not known & (core | extra):
            missing[module] = sorted(paths)
    assert missing == {}


@pytest.mark.parametrize("name", ["filelock", "pyarrow", "huggingface-hub", "pyyaml", "torch"])
def test_what_every_run_needs_is_in_the_core(name: str) -> None:
    assert name in declared()[0]


def test_remote_code_is_refused_by_name() -> None:
    """Every call of ``from_pretrained`` says ``trust_remote_code=False``."""
    silent = []
    for path in (ROOT / "lkf_plugin").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr not in ("from_pretrained", "from_config"):
                continue
            told = [k.value for k in node.keywords if k.arg == "trust_remote_code"]
            if not (told and isinstance(told[0], ast.Constant) and told[0].value is False):
                silent.append(f"{path.name}:{node.lineno}")
    assert silent == []

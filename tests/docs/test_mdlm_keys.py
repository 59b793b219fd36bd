"""docs/mdlm.md lists what MDLM's configuration has and ours has not, and no more."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import yaml

from lkf_plugin.runs.settings import flatten
from lkf_plugin.upstream.checkout import find_checkout

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "mdlm.md").read_text(encoding="utf-8")
GROUPS_OF_BOTH = ("callbacks", "data", "lr_scheduler", "model", "noise", "strategy")


@pytest.fixture(scope="module")
def theirs() -> Path:
    checkout = find_checkout()
    if checkout is None:
        pytest.skip("no MDLM checkout: set MDLM_HOME or fetch external/mdlm")
    return checkout / "configs"


def table(heading: str) -> list[list[str]]:
    """Rows of the first table under a heading, without its first two lines."""
    section = PAGE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def read(path: Path) -> dict[str, Any]:
    """Keys of one file, dotted, as they are written; the defaults list is taken apart."""
    content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    defaults = [entry for entry in content.pop("defaults", []) if isinstance(entry, dict)]
    chosen = {key.strip("/"): name for entry in defaults for key, name in entry.items()}
    return flatten(content) | {key: name for key, name in chosen.items() if key in GROUPS_OF_BOTH}


def keys(configs: Path) -> set[str]:
    """All keys that some choice of some group has."""
    found: set[str] = set()
    for path in configs.rglob("*.yaml"):
        group = path.parent.relative_to(configs).as_posix()
        if group not in ("experiment", "logger"):  # these set keys of others
            prefix = "" if group == "." else f"{group}."
            found |= {prefix + key for key in read(path)}
    return found


def test_missing_keys_are_listed(theirs: Path) -> None:
    listed = [key for row in table("Missing keys") for key in quoted(row[0])]
    missing = keys(theirs) - keys(ROOT / "configs")
    unlisted = {key for key in missing if not any(fnmatchcase(key, name) for name in listed)}
    assert unlisted == set()
    assert [name for name in listed if not any(fnmatchcase(key, name) for key in missing)] == []


def test_missing_choices_are_listed(theirs: Path) -> None:
    listed = {quoted(row[0])[0]: set(quoted(row[1])) for row in table("Missing choices")}
    for group in GROUPS_OF_BOTH:
        here, there = (
            {path.stem for path in (configs / group).glob("*.yaml")}
            for configs in (ROOT / "configs", theirs)
        )
        assert there - here == listed.get(group, set()), group


def test_other_defaults_are_listed(theirs: Path) -> None:
    there, here = (read(configs / "config.yaml") for configs in (theirs, ROOT / "configs"))
    listed = {quoted(row[0])[0] for row in table("Other defaults")}
    reckoned = {
        *("loader.batch_size", "loader.eval_batch_size"),
        *("trainer.accumulate_grad_batches", "trainer.val_check_interval"),
    }
    common = (there.keys() & here.keys()) - reckoned - {"callbacks"}  # the same, in other syntax
    differ = {key for key in common if there[key] != here[key]}
    assert listed - {"wandb"} == differ


def test_names_given_instead_exist() -> None:
    ours = keys(ROOT / "configs")
    for row in table("Missing keys"):
        for name in quoted(row[1]):
            if name.split(".")[0] in ("callbacks", "checkpointing", "lr_scheduler"):
                assert any(fnmatchcase(key, name) for key in ours), name

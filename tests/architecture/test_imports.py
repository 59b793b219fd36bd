"""The folders of docs/architecture.md, top to bottom: who may import whom.

The page's table is the only place where the order is written. A module that lies directly in
``lkf_plugin`` counts as a folder of its own.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
TOPS = ("lkf_plugin", "experiments")
MATHEMATICS = ("kernel", "corruption", "subs", "latents", "token_head", "objective")
FRAMEWORKS = ("lightning", "pytorch_lightning", "hydra")

Arrows = dict[tuple[str, str], list[str]]  # (folder, folder that it imports): by which modules


def modules() -> dict[str, Path]:
    """Every module of the library and of the experiments, by dotted name."""
    paths = (path for top in TOPS for path in sorted((ROOT / top).rglob("*.py")))
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in paths
    }


def imports(name: str, path: Path, known: dict[str, Path]) -> Iterator[str]:
    """Modules that a module imports anywhere in it; ours as modules, others as they are named."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield full if full in known else base


def folder_of(module: str) -> str:
    """``decode`` of lkf_plugin.decode.engine, ``lkf_plugin`` of itself, ``experiments/paper``."""
    top, *inside = module.split(".")
    if top == "lkf_plugin":
        return inside[0] if inside else top
    return "/".join([top, *inside[:1]])


def arrows() -> Arrows:
    """All arrows between two folders."""
    known, found = modules(), defaultdict(list)
    for name, path in known.items():
        for other in imports(name, path, known):
            if other.partition(".")[0] in TOPS and folder_of(other) != folder_of(name):
                found[folder_of(name), folder_of(other)].append(f"{name} -> {other}")
    return dict(found)


def layers(text: str) -> dict[str, int]:
    """Folder and layer of every row ``| layer | `folder` | ... |`` of the page."""
    rows = re.findall(r"^\|\s*(\d+)\s*\|\s*`([\w/]+?)/?`\s*\|", text, flags=re.MULTILINE)
    names = [name for _, name in rows]
    assert len(set(names)) == len(names), "a folder stands twice in the table"
    return {name: int(layer) for layer, name in rows}


def upward(order: dict[str, int], found: Arrows) -> list[str]:
    """Imports that do not lead to a lower layer."""
    return sorted(
        f"{source} (layer {order[source]}) must not import {target} (layer {order[target]}): {by}"
        for (source, target), all_by in found.items()
        for by in all_by
        if order[target] >= order[source]
    )


@pytest.fixture(scope="module")
def order() -> dict[str, int]:
    return layers(PAGE.read_text(encoding="utf-8"))


def test_the_page_has_every_folder(order: dict[str, int]) -> None:
    there = {folder_of(name) for name in modules()} - {"experiments"}  # an empty __init__
    assert there == set(order)


def test_imports_point_downward_only(order: dict[str, int]) -> None:
    """Every arrow leads to a lower layer, so there is no circle either."""
    assert upward(order, arrows()) == []


def test_the_library_never_imports_the_experiments() -> None:
    """Neither by a statement nor by a dotted name in a string or a YAML file."""
    of_the_library = [pair for pair in arrows() if not pair[0].startswith("experiments")]
    assert [pair for pair in of_the_library if pair[1].startswith("experiments")] == []
    files = [*(ROOT / "lkf_plugin").rglob("*.py"), *(ROOT / "configs").rglob("*.yaml")]
    named = [
        path.relative_to(ROOT).as_posix()
        for path in files
        if re.search(r"\bexperiments(\.\w+)+\b|['\"]experiments['\"]", path.read_text("utf-8"))
    ]
    assert named == []


def reached(start: str) -> set[str]:
    """Modules, ours and others, that importing a folder brings in by its files' own statements."""
    known, seen = modules(), set()
    waiting = [name for name in known if name.startswith("lkf_plugin") and folder_of(name) == start]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in known:
            waiting += imports(name, known[name], known)
    return seen


@pytest.mark.parametrize("folder", MATHEMATICS)
def test_mathematics_knows_no_framework(folder: str) -> None:
    """Nor does anything that it imports."""
    if not any(folder_of(name) == folder for name in modules()):
        pytest.skip(f"there is no {folder} yet")
    assert {name for name in reached(folder) if name.partition(".")[0] in FRAMEWORKS} == set()


SMALL_USE = """
import sys
for name in ("experiments", "scripts", "benchmarks", "tests", "lightning", "hydra"):
    sys.modules[name] = None  # importing it fails
import torch
import lkf_plugin
assert lkf_plugin.__version__
from lkf_plugin.backbone import build_backbone
from lkf_plugin.corruption import LogLinearNoise
from lkf_plugin.decode import DecodeNetwork, DecodeRequest, POLICIES, RolloutEngine
from lkf_plugin.objective import OBJECTIVES, PlainDraws
shape = dict(type="lkf", trunk="native", hidden_size=16, cond_dim=8, n_blocks=2, n_heads=2,
             length=8, dropout=0.0, num_components=3, latent_blocks=1, latent_emb_std=1.0,
             latent_film_std=0.02)
torch.manual_seed(0)
model = build_backbone(shape, vocab_size=7, mask_index=2)
settings = dict(token_head="auto", chunk_rows=64, lambda_ent=0.1, lambda_lb=-0.1)
objective = OBJECTIVES["mixture"](settings, 3)
x0 = torch.randint(3, 7, (4, 8))
corruption = objective.corrupt(x0, torch.ones_like(x0), PlainDraws.of(2))
value = objective.train(model, corruption)
value.loss.backward()
assert value.loss.isfinite() and model.head_weight.grad.abs().sum() > 0
engine = RolloutEngine(DecodeNetwork(model.eval(), LogLinearNoise(), lambda sigma: sigma), 4)
request = DecodeRequest(engine, torch.full((2, 8), 2), torch.arange(2))
decoded = POLICIES["best_of_m"](request, {"policy": "best_of_m"})
assert decoded.x_GL.shape == (2, 8) and not (decoded.x_GL == 2).any()
print(lkf_plugin.__file__)
"""


def test_the_library_is_of_use_alone(tmp_path: Path) -> None:
    """A folder that holds the package and nothing else trains a step and draws two samples."""
    (tmp_path / "lkf_plugin").symlink_to(ROOT / "lkf_plugin")
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{SMALL_USE}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(tmp_path)


# --- the readers themselves --------------------------------------------------------------------


def test_an_upward_arrow_and_a_circle_are_seen() -> None:
    order = {"low": 0, "high": 1, "side": 1}
    assert upward(order, {("high", "low"): ["a"]}) == []
    assert len(upward(order, {("low", "high"): ["a", "b"], ("high", "low"): ["c"]})) == 2
    assert len(upward(order, {("high", "side"): ["a"]})) == 1


def test_every_form_of_import_is_read(tmp_path: Path) -> None:
    path = tmp_path / "engine.py"
    path.write_text(
        "import lkf_plugin.kernel, torch.nn\nfrom lkf_plugin import subs, __version__\n"
        "def f():\n    from ..data import prepare\n    from . import noise\n"
    )
    known = {name: path for name in ("lkf_plugin.subs", "lkf_plugin.decode.noise")}
    assert list(imports("lkf_plugin.decode.engine", path, known)) == [
        "lkf_plugin.kernel",
        "torch.nn",
        "lkf_plugin.subs",
        "lkf_plugin",
        "lkf_plugin.data",
        "lkf_plugin.decode.noise",
    ]


def test_the_table_is_read() -> None:
    assert layers("| layer | folder |\n|---|---|\n| 1 | `a/` | x |\n| 0 | `b` | y |\n") == {
        "a": 1,
        "b": 0,
    }

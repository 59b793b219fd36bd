"""What the demo must show on any machine: kept by the README's record, and by a demo run now."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from experiments.demo.promises import BEST, FROZEN, ONE, ONE_BEST, PROMISES, Promise, render

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = str(ROOT / "scripts" / "demo.py")


def valid_of(record: dict[str, Any]) -> dict[tuple[str, int], float]:
    return {(cell["row"], cell["J"]): cell["valid"] for cell in record["cells"]}


def kept() -> dict[str, Any]:
    record: dict[str, Any] = json.loads(
        (ROOT / "docs" / "records" / "demo" / "demo.json").read_text(encoding="utf-8")
    )
    return record


def test_promises_read_the_cells_of_the_demo():
    rows = {cell["row"] for cell in kept()["cells"]}
    assert rows == {ONE, FROZEN, ONE_BEST, BEST}
    assert {promise.J for promise in PROMISES} <= set(runpy.run_path(SCRIPT)["STEPS_J"])


def test_the_kept_demo_keeps_them():
    valid = valid_of(kept())
    assert [str(promise) for promise in PROMISES if not promise.kept(valid)] == []
    assert "BROKEN" not in render(valid)


def test_a_mixture_that_gains_nothing_breaks_them():
    valid = valid_of(kept())
    for J in (1, 2, 4, 8, 32):
        valid[FROZEN, J], valid[BEST, J] = valid[ONE, J], valid[ONE_BEST, J]
    broken = [promise for promise in PROMISES if not promise.kept(valid)]
    assert {promise.row for promise in broken} == {FROZEN, BEST} and len(broken) >= 6
    assert render(valid).count("BROKEN") == len(broken)


def test_a_promise_says_what_it_asks():
    promise = Promise(BEST, 2, low=0.5, above=ONE_BEST)
    assert str(promise) == f"{BEST}, J=2: at least 0.5 above {ONE_BEST}"
    assert promise.kept({(BEST, 2): 0.6, (ONE_BEST, 2): 0.1})
    assert not promise.kept({(BEST, 2): 0.6, (ONE_BEST, 2): 0.2})


def test_the_readme_shows_the_kept_demo():
    script = runpy.run_path(SCRIPT)
    record = kept()
    cells = [script["Cell"](**cell) for cell in record.pop("cells")]
    assert script["render_table"](cells, record) in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_demo_from_a_perturbed_start_keeps_them(tmp_path: Path):
    """Another run than ``make demo`` makes on this machine, which prints the promises itself."""
    runpy.run_path(SCRIPT)["run_demo"](tmp_path, None, 128, 1, perturb=True)
    record = json.loads((tmp_path / "demo.json").read_text(encoding="utf-8"))
    assert record["start"] == "moved by one last bit"
    valid = valid_of(record)
    assert [str(promise) for promise in PROMISES if not promise.kept(valid)] == []

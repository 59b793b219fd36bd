"""What the demo must show on any machine: kept by the README's record, and by a demo run now."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.demo.cells import ROWS, STEPS_J, valid_fractions
from experiments.demo.promises import (
    BEST,
    FROZEN,
    ONE,
    ONE_BEST,
    PROMISES,
    TREE,
    Promise,
    render,
)
from experiments.demo.run import run_demo
from experiments.demo.table import render_table
from lkf_plugin.records.record import Record
from lkf_plugin.records.store import read_records

ROOT = Path(__file__).resolve().parents[3]


def kept() -> list[Record]:
    return read_records(ROOT / "docs" / "records" / "demo")


def test_promises_read_the_cells_of_the_demo():
    assert set(ROWS) == {ONE, FROZEN, TREE, ONE_BEST, BEST}
    assert len(kept()) == len(ROWS) * len(STEPS_J)
    assert {promise.J for promise in PROMISES} <= set(STEPS_J)


def test_the_kept_demo_keeps_them():
    valid = valid_fractions(kept())
    assert [str(promise) for promise in PROMISES if not promise.kept(valid)] == []
    assert "BROKEN" not in render(valid)


def test_a_mixture_that_gains_nothing_breaks_them():
    valid = valid_fractions(kept())
    for J in (1, 2, 4, 8, 32):
        valid[FROZEN, J], valid[BEST, J] = valid[ONE, J], valid[ONE_BEST, J]
        valid[TREE, J] = valid[ONE, J]
    broken = [promise for promise in PROMISES if not promise.kept(valid)]
    assert {promise.row for promise in broken} == {FROZEN, TREE, BEST} and len(broken) >= 10
    assert render(valid).count("BROKEN") == len(broken)


def test_a_promise_says_what_it_asks():
    promise = Promise(BEST, 2, low=0.5, above=ONE_BEST)
    assert str(promise) == f"{BEST}, J=2: at least 0.5 above {ONE_BEST}"
    assert promise.kept({(BEST, 2): 0.6, (ONE_BEST, 2): 0.1})
    assert not promise.kept({(BEST, 2): 0.6, (ONE_BEST, 2): 0.2})


def test_the_readme_shows_the_kept_demo():
    assert render_table(kept()) in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_demo_from_a_perturbed_start_keeps_them(tmp_path: Path):
    """Another run than ``make demo`` makes on this machine, which prints the promises itself."""
    run_demo(tmp_path, None, 128, 1, perturb=True)
    assert "start moved by one last bit." in (tmp_path / "table.md").read_text(encoding="utf-8")
    valid = valid_fractions(read_records(tmp_path / "records"))
    assert [str(promise) for promise in PROMISES if not promise.kept(valid)] == []

"""The plan of the kills, the comparison, and a few real ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from experiments.pages.blocks import fill
from lkf_plugin.records.store import read_records

ROOT = Path(__file__).resolve().parents[2]


def test_the_plan_covers_every_cell_and_is_a_function_of_the_seed() -> None:
    from kill_runs import PHASES, SIGNALS, plan

    kills = plan(100, 3)
    assert kills == plan(100, 3) != plan(100, 4)
    assert len(kills) == 100
    cells = {(kill.name, kill.phase, kill.processes) for kill in kills}
    assert len(cells) == len(SIGNALS) * (2 * len(PHASES) - 1)


@pytest.mark.parametrize("changed", ["", "metrics.csv", "samples.jsonl", "weight", "names"])
def test_one_bit_is_a_difference(tmp_path: Path, changed: str) -> None:
    from kill_runs import difference

    for name in ("a", "b"):
        spoilt = changed if name == "b" else ""
        (tmp_path / name / "checkpoints").mkdir(parents=True)
        (tmp_path / name / "samples").mkdir()
        value = torch.tensor([0.0, 1.0])
        if spoilt == "weight":
            value[0] = -0.0
        torch.save({"state": [value, 3]}, tmp_path / name / "checkpoints" / "last.ckpt")
        if spoilt == "names":
            torch.save({}, tmp_path / name / "checkpoints" / "best.ckpt")
        for file in ("metrics.csv", "samples.jsonl", "samples/step-4.txt"):
            (tmp_path / name / file).write_text("x" if file != spoilt else "y")
    told = difference(tmp_path / "a", tmp_path / "b")
    assert bool(told) is bool(changed), told


def test_the_page_shows_the_kept_record() -> None:
    from kill_runs import table

    (kept,) = read_records(ROOT / "docs" / "records" / "reliability")
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    assert fill(page, {"kills": table(kept)}) == page


@pytest.mark.slow
def test_a_few_kills_end_equal(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "kill_runs.py"), "--kills", "8"]
    done = subprocess.run(
        [*command, "--seed", "5", "--records", str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (result,) = read_records(tmp_path)
    assert result.value("killed") == result.value("equal") == 8 and not result.series["problems"]

"""Repetitions are interleaved, in the same process or in others."""

from __future__ import annotations

from pathlib import Path

import pytest
from timing import interleaved, median_ratio, ratio, timed
from worker import workers

SCRIPT = '''
import sys
sys.path.append({folder!r})
from worker import serve

held = []

def run():
    print("noise")  # must not reach the answers
    held.append(bytearray(64 << 20))

serve(run, lambda: {{"name": sys.argv[2], "runs": len(held)}})
'''


def test_rounds_are_interleaved_and_the_first_is_not_counted() -> None:
    order: list[str] = []
    run = {name: timed(lambda name=name: order.append(name)) for name in "ab"}
    times = interleaved(run, rounds=2)
    assert "".join(order) == "ababab"
    assert [len(times[name].cpu) for name in "ab"] == [2, 2]
    order.clear()
    interleaved(run, rounds=1, warmed=["b"])
    assert "".join(order) == "bab"
    assert median_ratio([2.0, 9.0, 4.0], [1.0, 3.0, 4.0]) == 2.0
    assert ratio([2.0, 9.0, 4.0], [1.0, 3.0, 4.0]) == "2.00 (1.00 to 3.00)"


def test_workers_tell_seconds_and_the_peak_of_the_first_repetition(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    folder = str(Path(__file__).resolve().parents[2] / "benchmarks")
    script.write_text(SCRIPT.format(folder=folder), encoding="utf-8")
    with workers(str(script), {"one": "1", "two": "2"}) as running:
        times = interleaved(running, rounds=2)
        facts = {name: worker.facts() for name, worker in running.items()}
    assert all(len(found.cpu) == 2 and min(found.wall) > 0 for found in times.values())
    assert [facts[name]["name"] for name in ("one", "two")] == ["1", "2"]
    assert facts["one"]["runs"] == 3
    assert 60 <= facts["one"]["peak_mb"] <= 80  # of one repetition, not of three


def test_worker_that_dies_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "script.py"
    script.write_text("raise SystemExit(7)", encoding="utf-8")
    with pytest.raises(RuntimeError, match=r"script.py --serve 1 ended \(7\)"):
        with workers(str(script), {"one": "1"}):
            pass

"""Sweeps through the command line: places, failed jobs, status, and the page afterwards."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from experiments.tables.command import main as report
from tests.cli.conftest import TINY
from tests.cli.test_main import call


def sweep(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    *arguments: str,
) -> tuple[int | str | None, str, str]:
    places = (f"data.cache_dir={tmp_path / 'cache'}", "run_dir=runs/a", "loader.eval_batch_size=4")
    return call(monkeypatch, tmp_path, capfd, "-m", *TINY, *places, *arguments)


def names(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "runs").iterdir())


def test_train_sample_and_report(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    again = ("optim.lr=1e-3,3e-4",)
    status, out, _ = sweep(monkeypatch, tmp_path, capfd, *again)
    assert status == 0 and names(tmp_path) == ["a-lr0.0003", "a-lr0.001"]
    assert "2 jobs done; side by side: python scripts/report.py runs\n" in out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "outputs", "runs"]
    assert [path.name for path in (tmp_path / "outputs").rglob("*.*")] == ["multirun.yaml"]
    status, out, _ = sweep(monkeypatch, tmp_path, capfd, *again)
    assert status == 0 and out.count("this run is complete") == 2
    evaluated = ("mode=ppl_eval", "eval.disable_ema=false,true")
    assert sweep(monkeypatch, tmp_path, capfd, *again, *evaluated)[0] == 0
    sampled = ("mode=sample_eval", "sampling.steps=1,2")
    assert sweep(monkeypatch, tmp_path, capfd, *again, *sampled)[0] == 0
    assert names(tmp_path) == ["a-lr0.0003", "a-lr0.001"]
    for run in (tmp_path / "runs").iterdir():
        assert len(list((run / "likelihoods").iterdir())) == 2
        files = sorted(path.name.split(".seed1.")[0] for path in (run / "samples").glob("*.jsonl"))
        assert files == ["mdlm.J1", "mdlm.J2"]

    assert report([str(tmp_path / "runs")]) == 0
    folder = tmp_path / "runs" / "report"
    page = (folder / "runs.md").read_text()
    assert "| run | optim.lr | steps |" in page and "## valid against J" in page
    with (folder / "runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["optim.lr"] for row in rows] == ["0.0003", "0.0003", "0.001", "0.001"]
    assert {row["ema"] for row in rows} == {"True", "False"}
    assert all(float(row["val_nll_se"]) > 0 and row["sequences"] == "12" for row in rows)
    assert (folder / "runs.png").read_bytes().startswith(b"\x89PNG")


def test_a_failed_job_does_not_end_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    starts = "init.from_checkpoint=missing.ckpt,null"
    status, _, err = sweep(monkeypatch, tmp_path, capfd, starts)
    assert status == 2 and names(tmp_path) == ["a-from_checkpoint-null"]
    last = err.strip().splitlines()[-1]
    assert last.startswith("error: 1 of 2 jobs failed: job 0 (init.from_checkpoint=missing.ckpt): ")
    assert "is not read by MDLM's own network" in last and "Traceback" not in err


def test_a_bug_in_a_job_keeps_its_traceback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from lkf_plugin import cli

    seen = []

    def fail(config: object) -> None:
        seen.append(config)
        if len(seen) == 1:
            raise AssertionError("a bug")

    monkeypatch.setattr(cli, "run", fail)
    status, _, err = sweep(monkeypatch, tmp_path, capfd, "seed=1,2")
    assert status == 1 and len(seen) == 2 and "Traceback" in err
    assert "error: 1 of 2 jobs failed: job 0 (seed=1): AssertionError: a bug" in err


def test_two_jobs_never_share_a_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    status, _, err = sweep(
        monkeypatch, tmp_path, capfd, "seed=1,2", f"checkpointing.save_dir={tmp_path / 'one'}"
    )
    assert status == 2 and "1 of 2 jobs failed: job 1 (seed=2): Job 1 (seed=2) would train" in err

"""metrics.csv: one row per step, and the same bytes after an interruption."""

from __future__ import annotations

from pathlib import Path

from lkf_plugin.train.csv_log import CsvLog


def write(log: CsvLog, first: int, last: int) -> None:
    for step in range(first, last):
        log.log_metrics({"trainer/loss": step / 3, "epoch": 0}, step)
        log.log_metrics({"trainer/lr": 0.1}, step)
        if step % 4 == 3:
            log.log_metrics({"val/nll": step / 7}, step)


def test_rows_columns_and_digits(tmp_path: Path) -> None:
    log = CsvLog(str(tmp_path))
    log.log_metrics({"b": 1 / 3}, 0)
    log.log_metrics({"a": 2.0}, 0)
    log.log_metrics({"b": 3.0}, 1)
    expected = "step,a,b\n1,2.0,0.3333333333333333\n2,,3.0\n"
    assert log.path.read_text() == expected


def test_resumed_log_has_the_same_bytes(tmp_path: Path) -> None:
    whole = CsvLog(str(tmp_path / "whole"))
    write(whole, 0, 12)
    first = CsvLog(str(tmp_path / "broken"))
    write(first, 0, 9)  # the checkpoint was taken after 6 steps
    second = CsvLog(str(tmp_path / "broken"))
    second.rewind(6)
    write(second, 6, 12)
    assert second.path.read_bytes() == whole.path.read_bytes()


def test_values_of_a_restored_step_join_its_row(tmp_path: Path) -> None:
    """The validation of the checkpoint's own step may come after the restart."""
    whole = CsvLog(str(tmp_path / "whole"))
    write(whole, 0, 6)
    first = CsvLog(str(tmp_path / "broken"))
    write(first, 0, 3)
    first.log_metrics({"trainer/loss": 1.0}, 3)
    first.log_metrics({"trainer/lr": 0.1}, 3)
    second = CsvLog(str(tmp_path / "broken"))
    second.rewind(4)
    second.log_metrics({"trainer/loss": 1.0, "val/nll": 3 / 7}, 3)
    write(second, 4, 6)
    assert second.path.read_bytes() == whole.path.read_bytes()


def test_a_fresh_run_starts_anew(tmp_path: Path) -> None:
    write(CsvLog(str(tmp_path)), 0, 5)
    log = CsvLog(str(tmp_path))
    log.rewind(0)
    log.log_metrics({"x": 1.0}, 0)
    assert log.path.read_text() == "step,x\n1,1.0\n"

"""metrics.csv as others read it, also while a run is writing it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from lkf_plugin.metrics_file import curve, read_metrics
from lkf_plugin.train.csv_log import CsvLog

HEAD = "step,trainer/loss,val/nll\n"


def read(folder: Path, text: str) -> list[dict[str, str]]:
    (folder / "metrics.csv").write_text(text)
    return read_metrics(folder / "metrics.csv").rows


def test_no_file_has_no_rows(tmp_path: Path) -> None:
    assert read_metrics(tmp_path / "metrics.csv") == ([], [], False)


def test_empty_cells_are_left_out_and_curves_have_what_is_a_number(tmp_path: Path) -> None:
    rows = read(tmp_path, HEAD + "1,0.5,\n2,,0.25\n3,none,0.125\n")
    assert rows[0] == {"step": "1", "trainer/loss": "0.5"}
    assert curve(rows, "trainer/loss") == [(1, 0.5)]
    assert curve(rows, "val/nll") == [(2, 0.25), (3, 0.125)]
    assert curve(rows, "never") == []


@pytest.mark.parametrize(
    "torn",
    [
        ".0895514488220215,1.0,\n",  # its start is that of a state since overwritten
        "2,0.5\n",
        "2,0.5,,7\n",
        "2,0.5,0.2",  # no end yet
        "\0\0\0\n",
    ],
)
def test_what_is_no_whole_row_is_passed_over_and_told(tmp_path: Path, torn: str) -> None:
    assert [row["step"] for row in read(tmp_path, HEAD + "1,0.5,\n" + torn)] == ["1"]
    assert read_metrics(tmp_path / "metrics.csv").left_out
    (tmp_path / "metrics.csv").write_text(HEAD + "1,0.5,\n")
    assert not read_metrics(tmp_path / "metrics.csv").left_out


def test_a_head_that_is_none_leaves_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, "1,0.5,\n2,0.5,\n") == []
    assert read(tmp_path, "step,a,a\n1,0.5,0.5\n") == []


def test_reading_beside_a_writer_gives_whole_rows_only(tmp_path: Path) -> None:
    """Each step's row is written three times, longer and longer, one over the other."""
    log, done = CsvLog(str(tmp_path)), threading.Event()
    log.log_metrics({"trainer/loss": 0.5, "trainer/lr": 0.1, "val/nll": 0.1}, 0)

    def write() -> None:
        for step in range(1, 400):
            for name in ("trainer/loss", "trainer/lr", "val/nll"):
                log.log_metrics({name: step / 7}, step)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not done.is_set():
        steps = [int(row["step"]) for row in read_metrics(log.path).rows]
        assert steps == list(range(1, len(steps) + 1))
    writer.join()
    assert len(read_metrics(log.path).rows) == 400

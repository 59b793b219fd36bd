"""metrics.csv: one row a logged step, the same bytes whether or not the run was interrupted."""

from __future__ import annotations

import csv
import io
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers.logger import Logger, rank_zero_experiment
from lightning.pytorch.utilities import rank_zero_only

from lkf_plugin.files import write_atomically
from lkf_plugin.metrics_file import STEP, read_metrics

_LOG = logging.getLogger(__name__)


class CsvLog(Logger):
    """Writes ``save_dir/metrics.csv``.

    A row's ``step`` is the number of optimizer steps done; training and validation values of one
    step share a row. Columns are sorted and grow as new names appear. Nothing that depends on the
    clock is written. On resume ``rewind`` drops the rows that the checkpoint has not seen.

    Args:
        save_dir: the run folder.
    """

    def __init__(self, save_dir: str) -> None:
        super().__init__()
        self.path = Path(save_dir) / "metrics.csv"
        self._columns: list[str] = []
        self._row: dict[str, Any] = {}  # the newest row; it may still grow
        self._row_start = 0  # where that row begins in the file
        self._opened = False

    @property
    def name(self) -> str:
        """Lightning's name for this kind of log."""
        return "csv"

    @property
    def version(self) -> str:
        """One log a run folder, so there are no versions."""
        return ""

    @property
    @rank_zero_experiment
    def experiment(self) -> CsvLog:
        """This object: there is no writer behind it."""
        return self

    @rank_zero_only
    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Nothing to do: config.yaml in the run folder holds the settings."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Adds values to the row of a step (Lightning counts from 0 the step in progress)."""
        values = {name: value for name, value in metrics.items() if name != "epoch"}
        if not values:
            return
        if not self._opened:
            self.rewind(0)
        done = 0 if step is None else step + 1
        if self._row and self._row[STEP] != done:
            self._row_start = os.path.getsize(self.path)
            self._row = {}
        self._row.update(values)
        self._row[STEP] = done
        self._write_row()

    @rank_zero_only
    def rewind(self, step: int) -> None:
        """Drops the rows after ``step``; with 0 the log starts anew."""
        self._opened = True
        rows = [row for row in self._read() if int(row[STEP]) <= step] if step else []
        if not step:
            self._columns = [STEP]
        self._row = dict(rows[-1]) if rows else {}
        if self._row:
            self._row[STEP] = int(self._row[STEP])
        self._rewrite(rows)

    def _read(self) -> list[dict[str, str]]:
        """Whole rows of the file; sets the columns."""
        columns, rows, left_out = read_metrics(self.path)
        if left_out:
            what = "rows that are not whole are dropped" if columns else "it is begun anew"
            _LOG.warning("%s is damaged: %s.", self.path, what)
        self._columns = columns or [STEP]
        return rows

    def _rewrite(self, rows: list[dict[str, Any]]) -> None:
        """Replaces the file in one stroke."""
        lines = [_line(self._columns)] + [self._format(row) for row in rows]
        write_atomically(self.path, b"".join(lines))
        self._row_start = sum(map(len, lines)) - (len(lines[-1]) if rows else 0)

    def _write_row(self) -> None:
        new = sorted(set(self._row) - set(self._columns))
        if new:
            rows: list[dict[str, Any]] = [r for r in self._read() if int(r[STEP]) < self._row[STEP]]
            self._columns = [STEP, *sorted({*self._columns, *new} - {STEP})]
            self._rewrite([*rows, self._row])
            return
        line = self._format(self._row)
        with self.path.open("r+b", buffering=0) as file:
            file.seek(self._row_start)
            file.write(line)  # one call, over the row's earlier state
            file.truncate()

    def _format(self, row: Mapping[str, Any]) -> bytes:
        return _line([_cell(row.get(name, "")) for name in self._columns])


def _cell(value: Any) -> str:
    """Shortest text that reads back as the same number."""
    return repr(value) if isinstance(value, float) else str(value)


def _line(cells: list[str]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(cells)
    return out.getvalue().encode()

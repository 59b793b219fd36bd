"""metrics.csv as it is read: by the run that goes on with it, and by others while it is written."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

STEP = "step"  # the first column: optimizer steps done


class Metrics(NamedTuple):
    """What a log holds.

    Attributes:
        columns: names, ``step`` first; empty where the head is none.
        rows: name -> cell, empty cells left out; ``step`` is a number.
        left_out: whether something of the file is not in them.
    """

    columns: list[str]
    rows: list[dict[str, str]]
    left_out: bool


def read_metrics(path: Path) -> Metrics:
    """The whole rows of a log; there need be no file.

    A row that is being written, that a killed machine left in part, or that is none is passed
    over: the writer lays a row's later state over its earlier one, so that whoever reads meanwhile
    may see the start of one and the end of the other.
    """
    if not path.is_file():
        return Metrics([], [], False)
    text = path.read_bytes().decode("utf-8", "replace")
    whole, _, rest = text.rpartition("\n")
    lines = whole.split("\n")
    try:
        table = list(csv.reader(line for line in lines if "\0" not in line))
    except csv.Error:
        table = []
    names = table[0] if table else []
    if names[:1] != [STEP] or len(set(names)) < len(names):
        return Metrics([], [], bool(text))
    rows = [row for row in table[1:] if len(row) == len(names) and row[0].isdecimal()]
    cells = [{n: cell for n, cell in zip(names, row, strict=True) if cell} for row in rows]
    return Metrics(names, cells, bool(rest) or len(rows) < len(lines) - 1)


def curve(rows: list[dict[str, str]], name: str) -> list[tuple[int, float]]:
    """(step, value) of each row that has a number of that name."""
    points = []
    for row in rows:
        try:
            points.append((int(row[STEP]), float(row[name])))
        except (KeyError, ValueError):
            continue
    return points

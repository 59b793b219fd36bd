"""Names of rows, and which records make one."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.compare.entries import all_cells, collect, steps_of
from experiments.compare.methods import row_label
from lkf_plugin.errors import UserError
from lkf_plugin.records.record import Record
from tests.records.make import SETTINGS, record


def test_a_row_is_named_by_its_candidates() -> None:
    assert row_label("lkf-M4", "own") == "lkf-M4"
    assert row_label("lkf-M4", "best") == "lkf-M4, best of 4"
    assert row_label("lkf-M1", "best") == "lkf-M1, best of 8"
    assert row_label("ar", "best") == "ar, best of 8"


def cell(row: str, decode: str, J: int, **more: Any) -> Record:
    return record(labels={"compared": row, "decoding": decode, "J": J}, **more)


def test_records_become_rows_in_the_order_of_the_tables() -> None:
    cells = [cell("duo", "own", 4), cell("duo", "own", 2), cell("ar", "best", 32)]
    bound = record(kind="likelihood", labels={"compared": "duo"})
    entries = collect([*cells, bound, record()], ["mdlm", "ar", "duo"])
    assert list(entries) == ["ar", "duo"] and entries["duo"].nelbo is bound
    assert [steps_of(one) for one in entries["duo"].under("own")] == [2, 4]
    assert entries["duo"].under("best") == [] and len(all_cells(entries)) == 3
    with pytest.raises(UserError, match="no likelihood beside the record bestof8"):
        _ = entries["ar"].nelbo


def test_two_records_of_a_place_are_refused() -> None:
    again = cell("duo", "own", 2, settings={**SETTINGS, "seed": 9})
    with pytest.raises(UserError, match="of one place of the comparison"):
        collect([cell("duo", "own", 2), again], ["duo"])

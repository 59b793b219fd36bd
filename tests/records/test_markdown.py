"""The one Markdown table."""

from __future__ import annotations

from lkf_plugin.records.markdown import markdown_table


def test_a_table_is_columns_a_rule_and_rows() -> None:
    assert markdown_table(["", "a"], [["x", "1"], ["y", ""]]) == (
        "|  | a |\n|---|---|\n| x | 1 |\n| y |  |"
    )


def test_rule_and_empty_cells_are_chosen() -> None:
    assert markdown_table(["a", ""], [], rule=" --- ", empty=" ") == "| a | |\n| --- | --- |"

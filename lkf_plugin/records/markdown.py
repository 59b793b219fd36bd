"""A Markdown table, for every page and report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def markdown_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    rule: str = "---",
    empty: str = "  ",
) -> str:
    """Columns, a rule and rows, without a line's end after the last.

    Args:
        columns: headings.
        rows: cells as texts; a ``|`` in one would end it.
        rule: what stands under each heading.
        empty: what an empty cell is filled with.
    """
    lines = ["".join(f" {cell} |" if cell else f"{empty}|" for cell in row) for row in rows]
    head = "".join(f" {cell} |" if cell else f"{empty}|" for cell in columns)
    return "\n".join(f"|{line}" for line in [head, f"{rule}|" * len(columns), *lines])

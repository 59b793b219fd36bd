"""Tables and escaped text of the page."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], bars: Sequence[str] = ()) -> str:
    """A table; columns of numbers are set as such.

    Args:
        columns: their heads.
        rows: their cells.
        bars: markup of a last column, one for each row.
    """
    numbers = [_numeric([row[i] for row in rows]) for i in range(len(columns))]
    cells = [' class="number"' if number else "" for number in numbers]
    cells[0] = ' class="name"'
    heads = [' class="number"' if number and i else "" for i, number in enumerate(numbers)]
    head = "".join(
        f'<th scope="col"{h}>{escaped(c)}</th>' for h, c in zip(heads, columns, strict=True)
    )
    head += '<th scope="col"></th>' if bars else ""
    drawn = [f'<td class="bars">{bar}</td>' for bar in bars] or [""] * len(rows)
    body = "\n".join(
        "<tr>"
        + "".join(f"<td{k}>{escaped(c)}</td>" for k, c in zip(cells, row, strict=True))
        + f"{bar}</tr>"
        for row, bar in zip(rows, drawn, strict=True)
    )
    return (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>'
        "</div>"
    )


def _numeric(cells: Sequence[str]) -> bool:
    filled = [cell.partition(" ± ")[0] for cell in cells if cell]
    return bool(filled) and all(_is_number(cell) for cell in filled)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def escaped(value: Any) -> str:
    """Anything as text of the page."""
    return html.escape(str(value), quote=True)

"""What a timing script found: printed, and kept in outputs/bench/NAME-THREADSt.json."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from timing import Times

from lkf_plugin.records.provenance import code_version, machine

OUT = Path("outputs/bench")
Rows = list[list[str]]


class Sheet:
    """The tables of one run of one script.

    Each is printed and written as soon as it is there, so that a run that is stopped keeps what it
    has measured.

    Args:
        name: of the record's file, which gets the number of threads too: ``training-2t.json``.
        title: what is measured.
        facts: what every table of the sheet depends on (sizes, rounds, measured rates).
    """

    def __init__(self, name: str, title: str, **facts: Any) -> None:
        self.path = OUT / f"{name}-{torch.get_num_threads()}t.json"
        self.record: dict[str, Any] = {
            "title": title,
            "machine": machine(),
            "torch": torch.__version__,
            "code": code_version(),
            "date": time.strftime("%Y-%m-%d"),
            "facts": {key: str(value) for key, value in facts.items()},
            "tables": [],
            "seconds": {},
        }
        print(f"# {title}\n\n{dependencies(self.record)}", flush=True)

    def table(
        self, name: str, caption: str, columns: list[str], rows: Rows, note: str = ""
    ) -> None:
        """One table more, with what to say above and below it."""
        found = {"name": name, "caption": caption, "columns": columns, "rows": rows, "note": note}
        self.record["tables"].append(found)
        print(f"\n{markdown(found)}", flush=True)
        self._write()

    def seconds(self, name: str, times: Mapping[str, Times]) -> None:
        """The repetitions behind a table's ratios."""
        self.record["seconds"][name] = {
            variant: {"cpu": _rounded(found.cpu), "wall": _rounded(found.wall)}
            for variant, found in times.items()
        }
        self._write()

    def _write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.record, indent=1) + "\n", encoding="utf-8")


TARGET_COLUMNS = ["target", "at most", "found", ""]
TARGET_CAPTION = "Targets: medians over the rounds of ratios within one run"


def target(label: str, at_most: float, found: float) -> list[str]:
    """A row of a table of targets."""
    return [label, f"{at_most:.2f}", f"{found:.2f}", "met" if found <= at_most else "**not met**"]


def _rounded(seconds: list[float]) -> list[float]:
    return [round(one, 4) for one in seconds]


def dependencies(record: dict[str, Any]) -> str:
    """Machine, versions, date and facts of a record, as one paragraph."""
    on = record["machine"]
    parts = [
        f"{on['cpu']}, {on['cores']} cores, {on['threads']} threads, GPU {on['gpu']}",
        f"torch {record['torch']}",
        f"code {record['code']}",
        record["date"],
        *(f"{key}: {value}" for key, value in record["facts"].items()),
    ]
    return "; ".join(parts) + "."


def markdown(table: dict[str, Any]) -> str:
    """A table of a record, with its caption and its note."""
    lines = [f"**{table['caption']}**", ""]
    for row in (table["columns"], ["---"] * len(table["columns"]), *table["rows"]):
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join([*lines, "", table["note"]]).strip()

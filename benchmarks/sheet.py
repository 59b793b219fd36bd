"""What a timing script measures: printed, and kept as a record of kind ``benchmark``.

The record's settings are the script, its number of threads and what it was asked for; its series
are the tables and the seconds behind them, its labels the title and the day.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from timing import Times

from lkf_plugin.records.markdown import markdown_table
from lkf_plugin.records.provenance import code_version, library_versions, machine
from lkf_plugin.records.record import Record
from lkf_plugin.records.store import write_record

OUT = Path("outputs/bench")
KIND = "benchmark"
MEASURED = ("matrix products, GFLOP/s", "measured")  # facts that the machine decides
Rows = list[list[str]]


class Sheet:
    """The tables of one run of one script.

    Each is printed and written as soon as it is there, so that a run that is stopped keeps what it
    has measured.

    Args:
        name: of the record, which gets the number of threads too: ``training-2t``.
        title: what is measured.
        facts: what every table of the sheet depends on (sizes, rounds, measured rates).
    """

    def __init__(self, name: str, title: str, **facts: Any) -> None:
        threads = torch.get_num_threads()
        texts = {key: str(value) for key, value in facts.items()}
        self._series: dict[str, Any] = {
            "facts": list(texts),
            "measured": {key: text for key, text in texts.items() if key in MEASURED},
            "tables": [],
            "seconds": {},
        }
        asked = {key: text for key, text in texts.items() if key not in MEASURED}
        self._fixed: dict[str, Any] = {
            "name": f"{name}-{threads}t",
            "settings": {"benchmark": name, "threads": threads, "facts": asked},
            "labels": {"title": title, "date": time.strftime("%Y-%m-%d")},
            "code": code_version(),
            "libraries": library_versions(),
            "machine": machine(),
        }
        print(f"# {title}\n\n{dependencies(self.record)}", flush=True)

    @property
    def record(self) -> Record:
        """What has been measured so far."""
        return Record(kind=KIND, subject={}, metrics={}, series=self._series, **self._fixed)

    def table(
        self, name: str, caption: str, columns: list[str], rows: Rows, note: str = ""
    ) -> None:
        """One table more, with what to say above and below it."""
        table = {"name": name, "caption": caption, "columns": columns, "rows": rows, "note": note}
        self._series["tables"].append(table)
        print(f"\n{markdown(table)}", flush=True)
        write_record(self.record, OUT)

    def seconds(self, name: str, times: Mapping[str, Times]) -> None:
        """The repetitions behind a table's ratios."""
        self._series["seconds"][name] = {
            variant: {"cpu": _rounded(one.cpu), "wall": _rounded(one.wall)}
            for variant, one in times.items()
        }
        write_record(self.record, OUT)


TARGET_COLUMNS = ["target", "at most", "found", ""]
TARGET_CAPTION = "Targets: medians over the rounds of ratios within one run"


def target(label: str, at_most: float, ratio: float) -> list[str]:
    """A row of a table of targets."""
    return [label, f"{at_most:.2f}", f"{ratio:.2f}", "met" if ratio <= at_most else "**not met**"]


def _rounded(seconds: list[float]) -> list[float]:
    return [round(one, 4) for one in seconds]


def dependencies(record: Record) -> str:
    """Machine, versions, date and facts of a record, as one paragraph."""
    on = record.machine
    facts = {**record.settings["facts"], **record.series["measured"]}
    parts = [
        f"{on['cpu']}, {on['cores']} cores, {on['threads']} threads, GPU {on['gpu']}",
        f"torch {record.libraries['torch']}",
        f"code {record.code}",
        str(record.labels["date"]),
        *(f"{key}: {facts[key]}" for key in record.series["facts"]),
    ]
    return "; ".join(parts) + "."


def markdown(table: Mapping[str, Any]) -> str:
    """A table of a record, with its caption and its note."""
    shown = markdown_table(table["columns"], table["rows"], rule=" --- ")
    return f"**{table['caption']}**\n\n{shown}\n\n{table['note']}".strip()

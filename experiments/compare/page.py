"""The comparisons' tables as docs/baselines.md shows them, from kept copies of cells.json."""

from __future__ import annotations

from pathlib import Path

from experiments.compare import agreetext, sotu
from experiments.compare.store import CellStore, all_cells
from experiments.compare.text_table import render
from lkf_plugin.errors import UserError

KEPT = "compare.json"


def tables(records: Path) -> dict[str, str]:
    """Name of a corpus -> its tables.

    Args:
        records: folder with ``agreetext/compare.json`` and ``sotu/compare.json``.

    Raises:
        UserError: one of them is not there.
    """
    return {"agreetext": _agreetext(records), "sotu": _sotu(records)}


def _store(records: Path, corpus: str) -> CellStore:
    path = records / corpus / KEPT
    if not path.is_file():
        raise UserError(f"{path} is no file: copy cells.json of the comparison there.")
    return CellStore(path)


def _agreetext(records: Path) -> str:
    entries = _store(records, "agreetext").known(agreetext.ROWS)
    return agreetext.render(entries, all_cells(entries)[0]["samples"])


def _sotu(records: Path) -> str:
    store = _store(records, "sotu")
    ends = store.entries[sotu.ENDS]
    judged_by = ends["key"].split(" judge=")[1]
    metric = f"gen_ppl[{judged_by.split()[0]}]"
    return render(store.known(sotu.ROWS), sotu.ROWS, ends, metric, judged_by)

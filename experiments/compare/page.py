"""The comparisons' tables as docs/baselines.md shows them, from kept copies of their records."""

from __future__ import annotations

from pathlib import Path

from experiments.compare import agreetext, sotu, targets
from experiments.compare.entries import Entry, collect
from experiments.compare.text_table import END_NAMES, render
from lkf_plugin.errors import UserError
from lkf_plugin.records.comparable import check_comparable
from lkf_plugin.records.record import Record
from lkf_plugin.records.store import read_records

STARTS = "agreetext-starts"  # other seeds, and a perturbed start


def tables(records: Path) -> dict[str, str]:
    """Name of a corpus -> its tables.

    Args:
        records: folder with copies of the comparisons' records: ``agreetext``,
            ``agreetext-starts`` and ``sotu``.

    Raises:
        UserError: one of them is not there, or holds what must not stand side by side.
    """
    return {
        "agreetext": _agreetext(records),
        "agreetext-targets": _targets(records),
        "sotu": _sotu(records),
    }


def _records(records: Path, corpus: str) -> list[Record]:
    kept = read_records(records / corpus)
    if not kept:
        raise UserError(
            f"{records / corpus} holds no record: copy the comparison's folder of records there."
        )
    check_comparable(kept, f"comparison on {corpus}")
    return kept


def _agreetext(records: Path) -> str:
    return agreetext.render(collect(_records(records, "agreetext"), agreetext.ROWS))


def _targets(records: Path) -> str:
    """The kept seed 1 and what ``docs/records/agreetext-starts`` holds, a folder for each start."""
    folders = sorted(path for path in (records / STARTS).iterdir() if path.is_dir())
    starts = {"seed 1": collect(_records(records, "agreetext"), agreetext.ROWS)}
    for folder in folders:
        kept = _records(records, f"{STARTS}/{folder.name}")
        starts[folder.name.replace("-", " ")] = collect(kept, agreetext.ROWS)
    return targets.render_targets(starts)


def _sotu(records: Path) -> str:
    kept = _records(records, "sotu")
    ends = {one.row: one for one in kept if one.row in END_NAMES}
    entries: dict[str, Entry] = collect(kept, sotu.ROWS)
    return render(entries, sotu.ROWS, ends, f"gen_ppl[{ends['real'].setting('judge.label')}]")

"""Fills the tables of docs/latents.md from kept records, and draws its figures.

    python scripts/latents_tables.py

scripts/latents.py makes the records: copy the folder of a study's records to
docs/records/latents/STUDY.
"""

from __future__ import annotations

from pathlib import Path

from experiments.latents.tables import tables
from experiments.pages.command import page_command

if __name__ == "__main__":
    page_command(__doc__, Path("docs/records/latents"), Path("docs/latents.md"), tables)

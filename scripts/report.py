"""Tables (Markdown, LaTeX, CSV) and figures from a folder of result records, or of runs.

    python scripts/report.py outputs/tables/records
    python scripts/report.py outputs/agreetext
    python scripts/report.py outputs/agreetext --html runs.html

A folder of runs, such as a sweep leaves, gives one page (runs.md, runs.csv, quality.csv, runs.png):
the settings that differ, val/nll with its standard error, and quality against J. ``--html`` writes
one self-contained page instead, with curves, samples and the command that made each number.

With records the paper's own numbers stand beside ours. Records that differ in corpus, wrap mode,
tokenizer, judge, sample count, precision, EMA or seed are refused, and the key that differs is
named.
"""

from __future__ import annotations

import sys

from experiments.tables.command import main

if __name__ == "__main__":
    sys.exit(main())

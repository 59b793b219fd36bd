"""Tables (Markdown, LaTeX, CSV) and figures from a folder of result records.

    python scripts/report.py outputs/tables/records

The paper's own numbers stand beside ours. Records that differ in corpus, wrap mode, tokenizer,
judge, sample count, precision, EMA or seed are refused, and the key that differs is named.
"""

from __future__ import annotations

import sys

from experiments.tables.command import main

if __name__ == "__main__":
    sys.exit(main())

"""CPU seconds that the offline judge needs, by precision. Needs `make judge`."""

from __future__ import annotations

import random
import sys
import time

from sheet import Sheet

from lkf_plugin.errors import UserError
from lkf_plugin.judge.judge import Judge

TEXTS, LENGTH, SHOWN = 16, 128, 512
WORDS = (
    "the people of this country have a right to expect that the law will be kept and that those "
    "who make it will answer for what they do with the money and the trust given to them"
).split()


def main() -> int:
    facts = {"texts": f"{TEXTS} of {LENGTH} judge tokens", "extrapolated to": SHOWN}
    sheet, rows = Sheet("judge", "Offline judge (smollm2)", **facts), []
    generator = random.Random(0)
    texts = [" ".join(generator.choices(WORDS, k=130)) for _ in range(TEXTS)]
    for dtype in ("float32", "bfloat16"):
        start = time.perf_counter()
        try:
            judge = Judge("smollm2", device="cpu", dtype=dtype)
        except UserError as error:
            print(error, file=sys.stderr)
            return 2
        loaded = time.perf_counter() - start
        judge.score(texts[:1], max_length=LENGTH, progress=False)
        start = time.process_time()
        score = judge.score(texts, max_length=LENGTH, progress=False)
        spent = (time.process_time() - start) * SHOWN / TEXTS
        rows.append([dtype, f"{loaded:.1f}", f"{spent:.0f}", f"{score.ppl:.2f}"])
    columns = ["precision", "load, s", f"CPU-s for {SHOWN} texts", "perplexity of the texts"]
    sheet.table("judge", "Scoring texts, by precision of the judge", columns, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())

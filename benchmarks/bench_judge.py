"""CPU seconds that the offline judge needs, by precision. Needs `make judge`."""

from __future__ import annotations

import random
import sys
import time

from lkf_plugin.errors import UserError
from lkf_plugin.evaluate.judge import Judge
from lkf_plugin.evaluate.provenance import machine

TEXTS = 16
WORDS = (
    "the people of this country have a right to expect that the law will be kept and that those "
    "who make it will answer for what they do with the money and the trust given to them"
).split()


def main() -> int:
    print(machine())
    generator = random.Random(0)
    texts = [" ".join(generator.choices(WORDS, k=130)) for _ in range(TEXTS)]
    print("| precision | load, s | CPU-s for 512 x 128 tokens (from 16) | gen-PPL |")
    print("|---|---|---|---|")
    for dtype in ("float32", "bfloat16"):
        start = time.perf_counter()
        try:
            judge = Judge("smollm2", device="cpu", dtype=dtype)
        except UserError as error:
            print(error, file=sys.stderr)
            return 2
        loaded = time.perf_counter() - start
        judge.score(texts[:1], max_length=128, progress=False)
        start = time.process_time()
        score = judge.score(texts, max_length=128, progress=False)
        spent = (time.process_time() - start) * 512 / TEXTS
        print(f"| {dtype} | {loaded:.1f} | {spent:.0f} | {score.ppl:.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())

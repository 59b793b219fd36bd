r"""Measures a trained run: samples under any policy, likelihood, and what the latent holds.

    python scripts/evaluate.py outputs/demo/M8 --steps 1 2 4 8
    python scripts/evaluate.py outputs/sotu/M8-seed1 --judge smollm2 --samples 128 \
        --policy best_of_m --policy best_of_m selector=evidence --policy halving
    python scripts/evaluate.py outputs/demo/M8/checkpoints/last.ckpt --policy solo component=all
    python scripts/evaluate.py outputs/sotu/M8-seed1 --judge smollm2 --mauve gpt2-large

One JSON record per cell goes to RUN/records; a cell whose record is there is not run again.
"""

from __future__ import annotations

import sys

from lkf_plugin.evaluate.command import main

if __name__ == "__main__":
    sys.exit(main())

"""DUO's curriculum: a training step with soft tokens of all V columns, of 32, and without.

Loss and gradient, no optimizer, at V = 30,522. Peak memory is that of a fresh process above one
that only builds the model and the batch.

Options: --rounds N, --batch B.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from typing import Any

import torch
from harness import Shape, Words, config_for, roughen
from sheet import Sheet
from timing import interleaved, ratio
from worker import SERVE, serve, workers

from lkf_plugin.runs.common import build_module

SHAPE = Shape(d=128, blocks=2)
VARIANTS: dict[str, tuple[list[str], int]] = {  # overrides, step of the run
    "MDLM": (["method=mdlm"], 0),
    "DUO, plain (after the curriculum)": (["method=duo"], 10**9),
    "DUO, curriculum, 32 columns": (["method=duo"], 0),
    "DUO, curriculum, all columns": (["method=duo", "method.curriculum.columns=30521"], 0),
}


def step_of(name: str, shape: Shape) -> Callable[[], Any]:
    """A training step of a variant."""
    overrides, step = VARIANTS[name]
    module = build_module(config_for(shape, overrides), Words(shape.vocab))
    roughen(module, 1.0)
    module.train()
    vars(module)["_optimizer_step"] = lambda: step
    x_BL = torch.randint(0, shape.vocab, (shape.batch, shape.length))
    ones_BL = torch.ones_like(x_BL)

    def run() -> None:
        module.zero_grad(set_to_none=True)
        module._loss(x_BL, ones_BL).loss.backward()

    return run


def main() -> None:
    """The table, or with --serve one variant's process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument(SERVE, dest="serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        name, batch = options.serve.rsplit("|", 1)
        serve(step_of(name, SHAPE._replace(batch=int(batch))))
        return
    shape = SHAPE._replace(batch=options.batch)
    with workers(__file__, {name: f"{name}|{shape.batch}" for name in VARIANTS}) as running:
        times = interleaved(running, options.rounds)
        above = {name: worker.facts()["peak_mb"] for name, worker in running.items()}
    facts = {"shape": shape, "rounds": options.rounds, "temperature": "that of the first step"}
    sheet = Sheet("duo", "DUO's curriculum", **facts)
    sheet.seconds("duo", times)
    plain = times["DUO, plain (after the curriculum)"].cpu
    sheet.table(
        "duo",
        "A training step of DUO",
        ["step", "CPU-s", "time / plain DUO", "peak MB above model and batch"],
        [
            [name, f"{statistics.median(t.cpu):.2f}", ratio(t.cpu, plain), f"{above[name]:.0f}"]
            for name, t in times.items()
        ],
    )


if __name__ == "__main__":
    main()

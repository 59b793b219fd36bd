"""A whole training step of the runs that `scripts/latents.py` has trained at equal CPU seconds.

Loss, gradient, optimizer and weight average of each run as it stands at its end, on its own text,
and of its first steps with EM's posteriors, where it has them.
One table from one run of this script: interleaved rounds, ratios with spread, and how many steps of
a run take the seconds of the factorised model that goes on.

    python benchmarks/steps_on_text.py outputs/latents/characters

Options: --rounds N, --seed N (of the training), --only TEXT ... (runs whose name holds one).
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
from pathlib import Path

import torch
from sheet import Sheet
from timing import interleaved, median_ratio, ratio
from variants import gamma_entropy
from worker import SERVE, serve, workers

from experiments.latents.arms import STUDIES
from experiments.latents.measure import windows
from lkf_plugin.data import prepare
from lkf_plugin.objective.draws import HostDraws
from lkf_plugin.runs.load import load_run
from lkf_plugin.train.em_start import FILE as LAW
from lkf_plugin.train.em_start import warm_up_of
from lkf_plugin.train.ema import ExponentialMovingAverage

REFERENCE, BATCHES = "M1-on", 64
FIRST_STEPS = ", EM's posteriors"  # after the name of a run


def be_worker(row: str) -> None:
    """One row's process: a run's folder, and which of its steps."""
    folder = row.removesuffix(FIRST_STEPS)
    with contextlib.redirect_stdout(sys.stderr):
        run_of = load_run(Path(folder))
        module, config = run_of.module, run_of.config
        prepared = prepare(config, ("train",))
        rows = prepared.train
        warm_up = warm_up_of(config, module, prepared) if row != folder else None
    assert rows is not None
    size = int(config.loader.global_batch_size)
    x0_NL = windows(rows.select(range(BATCHES * size)))
    module.train()
    optimizer = module.configure_optimizers()["optimizer"]
    average = ExponentialMovingAverage(module._weights(), config.training.ema)

    def run() -> None:
        first = int(torch.randint(BATCHES, ())) * size
        x0_BL = x0_NL[first : first + size]
        if warm_up is None:
            loss = module._loss(x0_BL, torch.ones(x0_BL.shape)).loss
        else:
            draws = HostDraws(module)
            corruption = module.objective.corrupt(x0_BL, torch.ones(x0_BL.shape), draws)
            loss = warm_up.train(module.backbone, corruption).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        average.update(module._weights())

    serve(run, lambda: {"gamma_entropy": gamma_entropy(module)})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", type=Path, help="folder of a study of text")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", metavar="TEXT", help=f"beside {REFERENCE}")
    if sys.argv[1:2] == [SERVE]:
        be_worker(sys.argv[2])
        return 0
    options = parser.parse_args()
    study: Path = options.study
    folder = study / f"seed{options.seed}"
    arms = [
        arm for arm in STUDIES[study.name].rows
        if (folder / arm / "checkpoints").is_dir()
        and (arm == REFERENCE or not options.only or any(t in arm for t in options.only))
    ]
    rows_of = {arm: str((folder / arm).resolve()) for arm in arms}
    rows_of |= {
        f"{arm}{FIRST_STEPS}": f"{path}{FIRST_STEPS}" for arm, path in rows_of.items()
        if (Path(path) / LAW).is_file()
    }
    sheet = Sheet(f"text-{study.name}", f"Training step on text by {study.name}",
                  rounds=options.rounds)
    with workers(__file__, rows_of) as running:
        times = interleaved(running, options.rounds)
        facts = {arm: worker.facts() for arm, worker in running.items()}
    reference = times[REFERENCE].cpu
    rows = [
        [
            row,
            facts[row]["gamma_entropy"],
            f"{statistics.median(times[row].cpu):.3f}",
            ratio(times[row].cpu, reference),
            f"{1000 / median_ratio(times[row].cpu, reference):,.0f}",
        ]
        for row in rows_of
    ]
    sheet.table(
        study.name,
        f"State of the Union by {study.name}: a training step",
        ["run", "H(gamma), nats", "CPU-s", f"time / {REFERENCE}", "steps for 1,000 of its"],
        rows,
        "Loss, gradient, optimizer, weight average. Ratios are medians over the rounds with their "
        "extremes, of CPU seconds.",
    )
    sheet.seconds(study.name, times)
    return 0


if __name__ == "__main__":
    sys.exit(main())

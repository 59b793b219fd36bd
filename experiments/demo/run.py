"""The demo: trains M = 1, M = 8 and a tree, samples them, and writes table, samples and picture."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from torch import Tensor

from experiments import runner
from experiments.demo import promises
from experiments.demo.cells import CLAUSES, ROWS, RUNS, STEPS_J, by_row, valid_fractions
from experiments.demo.figure import draw_figure
from experiments.demo.table import render_samples, render_table
from experiments.studies.perturbation import perturbed_start
from lkf_plugin.config import cpu_count
from lkf_plugin.data.corpus import VALID
from lkf_plugin.evaluate.evaluation import Evaluation
from lkf_plugin.evaluate.policies import policy_settings
from lkf_plugin.evaluate.quality import quality_for
from lkf_plugin.files import write_atomically
from lkf_plugin.progress import bar
from lkf_plugin.records.record import Record
from lkf_plugin.runs.load import load_run

WORKERS = 2  # trainings side by side


def run_demo(out: Path, steps: int | None, samples: int, seed: int, perturb: bool = False) -> None:
    """Trains what is not trained yet, samples, and writes everything to ``out``.

    Args:
        out: folder of runs, records and results.
        steps: of training, instead of the recipe's.
        samples: a cell.
        seed: of training and samples.
        perturb: whether training starts from weights moved by one last bit.
    """
    began = time.monotonic()
    more = [f"trainer.max_steps={steps}"] if steps else []
    more += perturbed_start(seed) if perturb else []
    runs = {name: demo_run(out, name, seed, more) for name in RUNS}
    runner.train(list(runs.values()), workers=WORKERS)
    torch.set_num_threads(min(2, cpu_count()))
    records, shown = sample_all(runs, samples, seed, out / "records")
    table = render_table(records, perturb)
    write_atomically(out / "table.md", table)
    write_atomically(out / "samples.txt", render_samples(shown))
    curves = {
        row: [(J, one.metrics[VALID].value, one.metrics[VALID].se or 0.0) for J, one in own.items()]
        for row, own in by_row(records).items()
    }
    draw_figure(out / "demo.png", curves, shown, CLAUSES)
    print(f"\n{table}\n{render_samples(shown, color=sys.stdout.isatty())}")
    if steps is None:  # the bounds are those of the recipe's own length
        print(promises.render(valid_fractions(records)))
    print(f"table, samples, picture, records and all runs: {out.resolve()}")
    print(f"took {time.monotonic() - began:.0f} s")


def demo_run(out: Path, name: str, seed: int, more: list[str]) -> runner.Run:
    """The training of a model, one of ``RUNS``."""
    return runner.Run(name, out / name, (*RUNS[name], f"seed={seed}", *more))


def sample_all(
    runs: dict[str, runner.Run], samples: int, seed: int, folder: Path
) -> tuple[list[Record], dict[str, Tensor]]:
    """The record of every cell, and a few samples of each row at J = 2."""
    models = {name: load_run(run.folder) for name, run in runs.items()}
    records: list[Record] = []
    shown: dict[str, Tensor] = {}
    with bar(title="sampling", unit="cell", total=len(ROWS) * len(STEPS_J), keep=True) as cells:
        for row, (name, policy) in ROWS.items():
            model, settings = models[name], policy_settings(policy)
            quality = quality_for(model.config, model.prepared.tokenizer, None, self_bleu_subset=0)
            evaluation = Evaluation(model, quality, folder, samples, seed, batch_size=samples)
            for J in STEPS_J:
                records.append(evaluation.policy(settings, J))
                cells.update()
            shown[row] = model.sample(settings, 2, 3, seed).x_GL
    return records, shown

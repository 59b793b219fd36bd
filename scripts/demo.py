"""The demo: agreement broken by independent draws, kept by one latent.

Trains M = 1 (MDLM) and M = 8 on AgreeText, samples both in J = 1 to 32 steps, and writes a table,
samples with their mistakes marked, a picture and both checkpoints to outputs/demo.

    make demo
    python scripts/demo.py --steps 400 --samples 64     # quicker and rougher
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from experiments.demo.figure import draw_figure
from lkf_plugin.corpora import agreetext
from lkf_plugin.errors import UserError
from lkf_plugin.evaluate.evaluation import Evaluation
from lkf_plugin.evaluate.policies import policy_settings
from lkf_plugin.evaluate.quality import quality_for
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.record import Record
from lkf_plugin.runs.load import LoadedRun, load_run

ROOT = Path(__file__).resolve().parent.parent
STEPS_J = (1, 2, 4, 8, 32)
COMPONENTS = (1, 8)
CLAUSES = 4

Cells = Mapping[str, Mapping[int, Record]]  # row -> J -> record


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", default="outputs/demo", help="run folder")
    parser.add_argument(
        "--steps", type=int, default=None, help="training steps (default: the recipe's)"
    )
    parser.add_argument("--samples", type=int, default=128, help="samples per cell")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    try:
        run_demo(Path(args.out), args.steps, args.samples, args.seed)
    except UserError as error:
        sys.exit(f"error: {error}")


def run_demo(out: Path, steps: int | None, samples: int, seed: int) -> None:
    """Trains what is not trained yet, samples, and writes everything to ``out``."""
    began = time.monotonic()
    train(out, steps, seed)
    torch.set_num_threads(min(2, os.cpu_count() or 1))
    single, mixture = (load_run(out / f"M{M}") for M in COMPONENTS)
    cells, shown = sample_all(single, mixture, samples, seed, out / "records")
    facts = describe(single, mixture, cells)
    table = render_table(cells, facts)
    text = render_samples(shown)
    (out / "table.md").write_text(table, encoding="utf-8")
    (out / "samples.txt").write_text(text, encoding="utf-8")
    curves = {
        row: [(J, valid(record).value, valid(record).se or 0.0) for J, record in own.items()]
        for row, own in cells.items()
    }
    draw_figure(out / "demo.png", curves, shown, CLAUSES)
    print(f"\n{table}\n{render_samples(shown, color=sys.stdout.isatty())}")
    print(f"table, samples, picture and both runs: {out.resolve()}")
    print(f"took {time.monotonic() - began:.0f} s")


# --- training ----------------------------------------------------------------------------------


def train(out: Path, steps: int | None, seed: int) -> None:
    """Both models side by side, each by the command that a user would give."""
    processes = {}
    out.mkdir(parents=True, exist_ok=True)
    threads = max((os.cpu_count() or 1) // len(COMPONENTS), 1)
    for M in COMPONENTS:
        command = [
            "main.py",
            "experiment=demo",
            f"model.num_components={M}",
            f"seed={seed}",
            f"run_dir={(out / f'M{M}').resolve()}",
            *([f"trainer.max_steps={steps}"] if steps else []),
        ]
        print("python", *command, flush=True)
        log = (out / f"train-M{M}.log").open("w", encoding="utf-8")
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        processes[M] = subprocess.Popen(
            [sys.executable, *command], cwd=ROOT, stdout=log, stderr=log, env=environment
        )
    try:
        watch(out, processes)
    except BaseException:
        for process in processes.values():
            process.terminate()
        raise
    for M, process in processes.items():
        if process.returncode != 0:
            tail = (out / f"train-M{M}.log").read_text(encoding="utf-8").strip().splitlines()
            raise UserError(
                f"training M={M} failed ({tail[-1] if tail else 'no message'}): "
                f"see {out / f'train-M{M}.log'}."
            )


def watch(out: Path, processes: dict[int, subprocess.Popen[bytes]]) -> None:
    """A progress bar a run, read from its metrics.csv."""
    bars = {
        M: tqdm(desc=f"training M={M}", unit="step", position=i, leave=True)
        for i, M in enumerate(processes)
    }
    running = True
    while running:
        running = any(process.poll() is None for process in processes.values())
        time.sleep(0.5)
        for M, bar in bars.items():
            step, total, loss = progress(out / f"M{M}")
            bar.total = total
            if loss is not None:
                bar.set_postfix_str(f"loss {loss:.3f}", refresh=False)
            bar.update(step - bar.n)
    for bar in bars.values():
        bar.close()


def progress(folder: Path) -> tuple[int, int | None, float | None]:
    """(step, steps in all, last loss) of a run."""
    settings, metrics = folder / "config.yaml", folder / "metrics.csv"
    total = None
    if settings.is_file():
        for line in settings.read_text(encoding="utf-8").splitlines():
            if line.strip().startswith("max_steps:"):
                total = int(line.split(":")[1])
    step, loss = 0, None
    if metrics.is_file():
        with metrics.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                step = int(row["step"])
                loss = float(row["trainer/loss"]) if row.get("trainer/loss") else loss
    return step, total, loss


# --- sampling ----------------------------------------------------------------------------------


def rows(single: LoadedRun, mixture: LoadedRun) -> dict[str, tuple[LoadedRun, dict[str, Any]]]:
    """Name of a row -> its model and how it is decoded."""
    return {
        "M=1": (single, policy_settings("commit")),
        "M=8, one frozen component": (mixture, policy_settings("commit")),
        "M=1, best of 8": (single, policy_settings("best_of_n")),
        "M=8, best of 8": (mixture, policy_settings("best_of_m")),
    }


def sample_all(
    single: LoadedRun, mixture: LoadedRun, samples: int, seed: int, folder: Path
) -> tuple[dict[str, dict[int, Record]], dict[str, Tensor]]:
    """The record of every cell by row and J, and a few samples at J = 2."""
    cells: dict[str, dict[int, Record]] = {}
    shown: dict[str, Tensor] = {}
    every = rows(single, mixture)
    with tqdm(total=len(every) * len(STEPS_J), desc="sampling", unit="cell") as bar:
        for name, (run, settings) in every.items():
            quality = quality_for(run.config, run.prepared.tokenizer, None, self_bleu_subset=0)
            evaluation = Evaluation(run, quality, folder, samples, seed, batch_size=samples)
            cells[name] = {}
            for J in STEPS_J:
                cells[name][J] = evaluation.policy(settings, J)
                bar.update()
            shown[name] = run.sample(settings, 2, 3, seed).x_GL
    return cells, shown


def describe(single: LoadedRun, mixture: LoadedRun, cells: Cells) -> dict[str, Any]:
    """What every figure of the demo depends on."""
    config, record = mixture.config, next(iter(cells["M=8, best of 8"].values()))
    on = record.machine
    return {
        "host": record.subject["host"],
        "machine": f"{on['cpu']}, {on['cores']} CPU cores",
        "torch": record.libraries["torch"],
        "corpus": f"AgreeText, {CLAUSES} clauses, {config.model.length} words",
        "tokenizer": "words (87 and the mask)",
        "wrap": config.data.wrap,
        "training steps": f"{single.step} (M=1), {mixture.step} (M=8)",
        "trunk": config.model.trunk,
        "batch": config.loader.global_batch_size,
        "ema": config.training.ema,
        "precision": record.precision,
        "selector": f"mixture NELBO, T={record.setting('decode.score_draws')}",
        "samples": record.samples,
        "seed": record.setting("seed"),
    }


# --- text --------------------------------------------------------------------------------------


def valid(record: Record) -> Estimate:
    """The fraction of valid texts."""
    return record.metrics["valid"]


def render_table(cells: Cells, facts: dict[str, Any]) -> str:
    """Markdown: valid fraction (entropy of the configuration) by row and J."""
    lines = [
        "| valid fraction (configuration entropy, nats) | calls | "
        + " | ".join(f"J={J}" for J in STEPS_J)
        + " |",
        "|" + "---|" * (len(STEPS_J) + 2),
    ]
    for label, M in (("closed form, M=1", 1), ("closed form, M=8 frozen", 8)):
        curve = [agreetext.few_step_validity(J, CLAUSES, M, adaptive=M > 1) for J in STEPS_J]
        lines.append(f"| {label} | J | " + " | ".join(f"{v:.3f}" for v in curve) + " |")
    calls = {"M=1, best of 8": "8(J+4)", "M=8, best of 8": "8(J+4)"}
    for row, own in cells.items():
        shown = []
        for record in own.values():
            h = record.value("configuration_entropy")
            perfect = record.value("configuration_entropy_of_as_many_perfect")
            entropy = "-" if h is None else f"{h:.1f} of {perfect:.1f}"
            shown.append(f"{valid(record).value:.3f} ({entropy})")
        lines.append(f"| {row} | {calls.get(row, 'J')} | " + " | ".join(shown) + " |")
    worst = max(valid(record).se or 0.0 for own in cells.values() for record in own.values())
    lines += [
        "",
        "Entropy: of (topic, numbers) among the valid samples, beside what as many perfect samples "
        f"would show. Standard errors are at most {worst:.3f}. "
        + "; ".join(f"{key} {value}" for key, value in facts.items())
        + ".",
    ]
    return "\n".join(lines) + "\n"


def render_samples(shown: dict[str, Tensor], color: bool = False) -> str:
    """Samples at J = 2, what is wrong marked."""
    lines = ["Samples at J = 2; words that disagree are marked:"]
    for row, x_GL in shown.items():
        lines.append(f"\n{row}")
        lines += [f"  {agreetext.render(x_L, mark=True, color=color)}" for x_L in x_GL]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()

"""The demo: agreement broken by independent draws, kept by one latent.

Trains M = 1 (MDLM) and M = 8 on AgreeText, samples both in J = 1 to 32 steps, and writes a table,
samples with their mistakes marked, a picture and both checkpoints to outputs/demo.

    make demo
    python scripts/demo.py --steps 400 --samples 64     # quicker and rougher
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import platform
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from experiments.demo import promises
from experiments.demo.figure import draw_figure
from experiments.studies.perturbation import perturbed_start
from lkf_plugin.corpora import agreetext
from lkf_plugin.decode.best_of_m import best_of_m
from lkf_plugin.decode.best_of_n import best_of_n
from lkf_plugin.decode.commit import commit
from lkf_plugin.decode.policy import Decoded, DecodeRequest
from lkf_plugin.errors import UserError
from lkf_plugin.runs.load import LoadedRun, load_run

ROOT = Path(__file__).resolve().parent.parent
STEPS_J = (1, 2, 4, 8, 32)
COMPONENTS = (1, 8)
CLAUSES = 4
SELECT = {"selector": "nelbo", "score_draws": 4, "shared_noise": False, "min_prior": None}


@dataclass(frozen=True)
class Cell:
    """One figure of the table with what it depends on."""

    row: str
    J: int
    valid: float
    valid_se: float
    configuration_entropy: float | None
    configuration_entropy_expected: float | None
    samples: int
    calls: float


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", default="outputs/demo", help="run folder")
    parser.add_argument(
        "--steps", type=int, default=None, help="training steps (default: the recipe's)"
    )
    parser.add_argument("--samples", type=int, default=128, help="samples a cell")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--perturb", action="store_true", help="start from weights moved by one last bit"
    )
    args = parser.parse_args()
    try:
        run_demo(Path(args.out), args.steps, args.samples, args.seed, args.perturb)
    except UserError as error:
        sys.exit(f"error: {error}")


def run_demo(
    out: Path, steps: int | None, samples: int, seed: int, perturb: bool = False
) -> None:
    """Trains what is not trained yet, samples, and writes everything to ``out``."""
    began = time.monotonic()
    train(out, steps, seed, perturb)
    torch.set_num_threads(min(2, os.cpu_count() or 1))
    single, mixture = (load_run(out / f"M{M}") for M in COMPONENTS)
    cells, shown = sample_all(single, mixture, samples, seed)
    facts = describe(single, mixture, samples, seed)
    table = render_table(cells, facts)
    text = render_samples(shown)
    (out / "table.md").write_text(table, encoding="utf-8")
    (out / "samples.txt").write_text(text, encoding="utf-8")
    record = {**facts, "cells": [asdict(cell) for cell in cells]}
    (out / "demo.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    curves = {
        row: [(c.J, c.valid, c.valid_se) for c in cells if c.row == row]
        for row in dict.fromkeys(c.row for c in cells)
    }
    draw_figure(out / "demo.png", curves, shown, CLAUSES)
    print(f"\n{table}\n{render_samples(shown, color=sys.stdout.isatty())}")
    if steps is None:  # the bounds are those of the recipe's own length
        print(promises.render({(cell.row, cell.J): cell.valid for cell in cells}))
    print(f"table, samples, picture and both runs: {out.resolve()}")
    print(f"took {time.monotonic() - began:.0f} s")


# --- training ----------------------------------------------------------------------------------


def train(out: Path, steps: int | None, seed: int, perturb: bool) -> None:
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
            *(perturbed_start(seed) if perturb else []),
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


def sample_all(
    single: LoadedRun, mixture: LoadedRun, samples: int, seed: int
) -> tuple[list[Cell], dict[str, Tensor]]:
    """Every cell of the table, and a few samples at J = 2."""

    def plain(r: DecodeRequest) -> Decoded:
        return commit(r, {"component": "router"})

    rows = [
        ("M=1", single, plain),
        ("M=8, one frozen component", mixture, plain),
        (
            "M=1, best of 8",
            single,
            lambda r: best_of_n(r, {**SELECT, "num_candidates": 8, "component": "router"}),
        ),
        ("M=8, best of 8", mixture, lambda r: best_of_m(r, SELECT)),
    ]
    cells: list[Cell] = []
    shown: dict[str, Tensor] = {}
    with tqdm(total=len(rows) * len(STEPS_J), desc="sampling", unit="cell") as bar:
        for name, run, policy in rows:
            for J in STEPS_J:
                decoded = policy(run.request(samples, J, seed))
                cells.append(measure(name, J, decoded))
                if J == 2:
                    shown[name] = decoded.x_GL[:3]
                bar.update()
    return cells, shown


def measure(row: str, J: int, decoded: Decoded) -> Cell:
    """Valid fraction with its standard error, and the entropy of what was said."""
    valid = agreetext.valid(decoded.x_GL).double()
    n, rate = valid.numel(), valid.mean().item()
    entropy = agreetext.configuration_entropy(decoded.x_GL)
    known = entropy.rows > 0
    return Cell(
        row,
        J,
        rate,
        math.sqrt(rate * (1 - rate) / n),
        entropy.plug_in if known else None,
        entropy.expected if known else None,
        n,
        decoded.steps_calls,
    )


def describe(single: LoadedRun, mixture: LoadedRun, samples: int, seed: int) -> dict[str, Any]:
    """What every figure of the demo depends on."""
    config = mixture.config
    return {
        "host": "builtin",
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} CPU cores",
        "torch": torch.__version__,
        "corpus": f"AgreeText, {CLAUSES} clauses, {config.model.length} words",
        "tokenizer": "words (87 and the mask)",
        "wrap": config.data.wrap,
        "training steps": f"{single.step} (M=1), {mixture.step} (M=8)",
        "trunk": config.model.trunk,
        "batch": config.loader.global_batch_size,
        "ema": config.training.ema,
        "precision": f"network {config.trainer.precision}, draws float64",
        "selector": f"mixture NELBO, T={SELECT['score_draws']}",
        "samples": samples,
        "seed": seed,
        "start": "moved by one last bit" if "perturb_start" in config.callbacks else "as drawn",
    }


# --- text --------------------------------------------------------------------------------------


def render_table(cells: list[Cell], facts: dict[str, Any]) -> str:
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
    for row in dict.fromkeys(cell.row for cell in cells):
        shown = []
        for cell in (c for c in cells if c.row == row):
            h = cell.configuration_entropy
            entropy = "-" if h is None else f"{h:.1f} of {cell.configuration_entropy_expected:.1f}"
            shown.append(f"{cell.valid:.3f} ({entropy})")
        lines.append(f"| {row} | {calls.get(row, 'J')} | " + " | ".join(shown) + " |")
    worst = max(cell.valid_se for cell in cells)
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

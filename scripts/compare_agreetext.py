"""AR, MDLM, SEDD, DUO and LKF on AgreeText: likelihood, and valid texts against network calls.

Trains every row that is not trained yet, evaluates and samples what is missing, and writes
table.md, cells.json and compare.png to outputs/compare_agreetext. It may be stopped at any time;
the same command goes on.

    python scripts/compare_agreetext.py
    python scripts/compare_agreetext.py --rows sedd duo --samples 64
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from tqdm import tqdm

from lkf_plugin.backbone.warm_start import read_checkpoint
from lkf_plugin.cli import config_folder
from lkf_plugin.corpora import agreetext
from lkf_plugin.corpora.plug_in import expected_plug_in_entropy
from lkf_plugin.data import valid_loader
from lkf_plugin.decode.policy import Decoded
from lkf_plugin.decode.registry import POLICIES
from lkf_plugin.errors import UserError
from lkf_plugin.evaluate.estimate import mean_and_error
from lkf_plugin.report.compare_figure import draw_comparison, row_label
from lkf_plugin.run.load import LoadedRun, load_run
from lkf_plugin.run.ppl_eval import file_digest
from lkf_plugin.run.settings import load_settings, write_atomically
from lkf_plugin.train.checkpoint import LAST
from lkf_plugin.train.seeding import seed_position

ROOT = Path(__file__).resolve().parent.parent
STEPS_J = (1, 2, 4, 8, 16, 32)
CLAUSES, CANDIDATES, DRAWS = 4, 8, 4
LATENT = "experiment=demo"
PLAIN = "experiment=agreetext_baseline"
ROWS: dict[str, list[str]] = {
    "ar": [PLAIN, "baseline=ar", "trainer.max_steps=600"],
    "mdlm": [PLAIN, "baseline=mdlm"],
    "sedd": [PLAIN, "baseline=sedd"],
    "duo": [
        PLAIN,
        "baseline=duo",
        "trainer.max_steps=1500",
        "baseline.curriculum.gamma_min=null",
        "baseline.curriculum.gamma_max=null",
    ],
    "lkf-M1": [LATENT, "model.num_components=1", "trainer.max_steps=900"],
    "lkf-M4": [LATENT, "model.num_components=4", "trainer.max_steps=900"],
    "lkf-M8": [LATENT, "model.num_components=8", "trainer.max_steps=900"],
}


@dataclass(frozen=True)
class Cell:
    """One figure of the table: a row, how it was sampled, and what came out."""

    row: str
    decode: str
    J: int
    valid: float
    valid_se: float
    configuration_entropy: float
    samples: int
    steps_calls: float
    network_calls: float


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("outputs/compare_agreetext"))
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--samples", type=int, default=256, help="samples a cell")
    parser.add_argument("--passes", type=int, default=4, help="draws of noise for the likelihood")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    try:
        compare(options.out, options.rows, options.samples, options.passes, options.seed)
    except UserError as error:
        sys.exit(f"error: {error}")


def compare(out: Path, rows: list[str], samples: int, passes: int, seed: int) -> None:
    """Everything that is missing, row by row, then table and figure."""
    store = out / "cells.json"
    done: dict[str, Any] = json.loads(store.read_text()) if store.is_file() else {}
    for row in rows:
        train(out / row, ROWS[row], seed)
        run = load_run(out / row)
        key = f"{file_digest(run.checkpoint)[:16]} n={samples} passes={passes} seed={seed}"
        if done.get(row, {}).get("key") != key:
            done[row] = {"key": key, "step": run.step, "cells": []}
        entry = done[row]
        if "nll" not in entry:
            entry["nll"], entry["nll_se"] = likelihood(run, passes, seed)
            entry["weights"] = sum(p.numel() for p in run.module.backbone.parameters())
            write_atomically(store, json.dumps(done, indent=2))
        plan = [(decode, J) for decode in decodings(row) for J in grid(row, decode)]
        known = {(cell["decode"], cell["J"]) for cell in entry["cells"]}
        missing = [cell for cell in plan if cell not in known]
        for decode, J in tqdm(missing, desc=f"sampling {row}", unit="cell"):
            decoded = sample(run, row, decode, J, samples, seed)
            entry["cells"].append(asdict(measure(row, decode, J, decoded)))
            write_atomically(store, json.dumps(done, indent=2))
    known_rows = {row: done[row] for row in ROWS if row in done}
    table = render(known_rows, samples)
    write_atomically(out / "table.md", table)
    cells = [cell for entry in known_rows.values() for cell in entry["cells"]]
    draw_comparison(out / "compare.png", cells, CLAUSES)
    print(f"{table}\ntable, cells, figure and runs: {out.resolve()}")


def train(folder: Path, overrides: list[str], seed: int) -> None:
    """The command that a user would give, unless the run is complete."""
    if complete(folder):
        return
    command = [sys.executable, "main.py", *overrides, f"seed={seed}", f"run_dir={folder.resolve()}"]
    print("python", *command[1:], flush=True)
    environment = {"OMP_NUM_THREADS": "2", **os.environ}
    if subprocess.run(command, cwd=ROOT, env=environment).returncode:
        raise UserError(f"training in {folder} failed: its own message is above.")


def complete(folder: Path) -> bool:
    """Whether the last checkpoint stands at the run's last step."""
    settings, last = load_settings(folder), folder / "checkpoints" / LAST
    if settings is None or not last.is_file():
        return False
    return read_checkpoint(last)["global_step"] >= settings["trainer"]["max_steps"]


@torch.no_grad()
def likelihood(run: LoadedRun, passes: int, seed: int) -> tuple[float, float | None]:
    """NELBO (AR: exact) in nats a token on the held-out texts, with its standard error.

    A text's values over the passes are averaged first; texts are the independent unit.
    """
    batch = run.config.loader.eval_batch_size
    per_text = torch.zeros(0, dtype=torch.float64)
    for index in range(passes):
        nats = []
        for i, data in enumerate(valid_loader(run.prepared, batch_size=batch)):
            seed_position(seed, "compare", index, i)
            losses = run.module._loss(data["input_ids"], data["attention_mask"])
            nats.append(losses.nlls.double().mean(-1))
        found = torch.cat(nats) / passes
        per_text = found if index == 0 else per_text + found
    estimate = mean_and_error(per_text.numpy())
    return estimate.value, estimate.se


def decodings(row: str) -> list[str]:
    """How a row is sampled: by its own sampler, and as the best of several chains."""
    return ["own"] if row in ("ar", "lkf-M1") else ["own", "best"]


def grid(row: str, decode: str) -> tuple[int, ...]:
    """AR has one cost, a call a token; eight chains are worth it at few steps only."""
    if row == "ar":
        return (CLAUSES * agreetext.CLAUSE_LENGTH,)
    return STEPS_J if decode == "own" else STEPS_J[:4]


@torch.no_grad()
def sample(run: LoadedRun, row: str, decode: str, J: int, samples: int, seed: int) -> Decoded:
    """``samples`` texts in J steps."""
    if row.startswith("lkf"):
        policy = "best_of_m" if decode == "best" else "commit"
        settings = OmegaConf.load(config_folder() / "decode" / f"{policy}.yaml")
        return POLICIES[policy](run.request(samples, J, seed), settings)
    module, config = run.module, run.config
    config.loader.eval_batch_size = samples
    config.decode.num_candidates, config.decode.score_draws = CANDIDATES, DRAWS
    module.policy = "best_of_n" if decode == "best" else row
    seed_position(seed, "compare", decode, J)
    module._sample(J, config.sampling.eps)
    return module.last_decoded


def measure(row: str, decode: str, J: int, decoded: Decoded) -> Cell:
    """Valid share with its standard error, and how diverse the valid texts are."""
    good = agreetext.valid(decoded.x_GL).double()
    rate, n = good.mean().item(), good.numel()
    entropy = agreetext.configuration_entropy(decoded.x_GL).plug_in if rate > 0 else 0.0
    error = math.sqrt(rate * (1 - rate) / n)
    calls = (decoded.steps_calls, decoded.network_calls)
    return Cell(row, decode, J, rate, error, entropy, n, *calls)


def render(rows: dict[str, Any], samples: int) -> str:
    """Two Markdown tables: likelihoods, and valid share (steps, calls) by J."""
    best = agreetext.nelbo_optimum(CLAUSES)
    lines = [
        f"AgreeText, C = {CLAUSES}, H / L = {best:.4f} nats a token.",
        "",
        "| row | weights | steps | NELBO, nats a token | minus H / L |",
        "|---|---|---|---|---|",
    ]
    for row, entry in rows.items():
        bound = "exact" if row == "ar" else "NELBO"
        lines.append(
            f"| {row} | {entry['weights']:,} | {entry['step']} | {bound} {entry['nll']:.4f} "
            f"± {entry['nll_se']:.4f} | {entry['nll'] - best:+.4f} |"
        )
    lines += [
        "",
        "| valid share (method's calls / network calls a sample) | "
        + " | ".join(f"J={J}" for J in STEPS_J)
        + " |",
        "|" + "---|" * (len(STEPS_J) + 1),
    ]
    for M in (1, 4, 8):
        exact = [agreetext.few_step_validity(J, CLAUSES, M, M > 1) for J in STEPS_J]
        lines.append(f"| closed form, M={M} | " + " | ".join(f"{v:.3f}" for v in exact) + " |")
    for row, entry in rows.items():
        for decode in decodings(row):
            label = row_label(row, decode)
            found = {c["J"]: c for c in entry["cells"] if c["decode"] == decode}
            texts = [_cell(found[J]) if J in found else "" for J in STEPS_J]
            lines.append(f"| {label} | " + " | ".join(texts) + " |")
    lines += ["", *_diversity(rows)]
    errors = [cell["valid_se"] for entry in rows.values() for cell in entry["cells"]]
    lines += ["", f"{samples} samples a cell; standard errors are at most {max(errors):.3f}."]
    return "\n".join(lines) + "\n"


def _diversity(rows: dict[str, Any]) -> list[str]:
    """Entropy of (topic, numbers) among the valid texts, beside that of as many perfect ones."""
    lines = [
        "| configuration entropy, nats (perfect texts) | "
        + " | ".join(f"J={J}" for J in STEPS_J)
        + " |",
        "|" + "---|" * (len(STEPS_J) + 1),
    ]
    for row, entry in rows.items():
        for decode in decodings(row):
            texts = []
            for J in STEPS_J:
                found = [c for c in entry["cells"] if (c["decode"], c["J"]) == (decode, J)]
                count = round(found[0]["valid"] * found[0]["samples"]) if found else 0
                perfect = expected_plug_in_entropy(count, agreetext.configurations(CLAUSES))
                entropy = found[0]["configuration_entropy"] if found else 0.0
                texts.append(f"{entropy:.2f} ({perfect:.2f})" if count else "")
            label = row_label(row, decode)
            lines.append(f"| {label} | " + " | ".join(texts) + " |")
    return lines


def _cell(cell: dict[str, Any]) -> str:
    return f"{cell['valid']:.3f} ({cell['steps_calls']:g} / {cell['network_calls']:.1f})"


if __name__ == "__main__":
    main()

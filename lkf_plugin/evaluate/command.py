"""The command line of ``scripts/evaluate.py``, in one process or several."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from omegaconf import OmegaConf

from lkf_plugin.config import cpu_count
from lkf_plugin.errors import UserError
from lkf_plugin.evaluate.evaluation import Evaluation
from lkf_plugin.evaluate.policies import policy_settings
from lkf_plugin.evaluate.quality import quality_for
from lkf_plugin.failures import print_lines
from lkf_plugin.judge.mauve import FEATURIZER, require_mauve
from lkf_plugin.processes import Processes
from lkf_plugin.records.record import Record
from lkf_plugin.runs.load import LoadedRun, load_run
from lkf_plugin.runs.processes import join
from lkf_plugin.runs.settings import CONFIG

STEPS = (1, 2, 4, 8, 16, 32)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; a mistake is told in one sentence with status 2."""
    args = _parser().parse_args(arguments)
    return print_lines(lambda: _lines(args))


def _lines(args: argparse.Namespace) -> Iterator[str]:
    """What the first of the processes has to say."""
    with join() as processes:
        for line in evaluate(args, processes):
            if processes.first:
                yield line


def evaluate(args: argparse.Namespace, processes: Processes) -> Iterator[str]:
    """Measures every cell that was asked for, and gives a line for each."""
    if args.mauve:
        require_mauve()  # before the samples, which take long
    torch.set_num_threads(cpu_count(args.threads))
    device = str(processes.device(torch.device(args.device)))
    run = open_run(args.run, device)
    quality = quality_for(
        run.config,
        run.prepared.tokenizer,
        args.judge,
        device,
        args.self_bleu,
        processes=processes,
    )
    folder = Path(args.out) if args.out else run_folder(args.run) / "records"
    evaluation = Evaluation(
        run,
        quality,
        folder,
        args.samples,
        args.seed,
        args.batch_size,
        args.judged_chains,
        not args.again,
        args.mauve,
        processes,
    )
    settings = [one for words in args.policy or [["commit"]] for one in policies(words, evaluation)]
    for one in settings:
        for steps in args.steps:
            yield _line(evaluation.policy(one, steps, attribute=not args.plain), quality.metric)
    if not args.plain:
        for end in evaluation.ends():
            yield _line(end, quality.metric)
        yield _line(evaluation.likelihood(args.sequences), "elbo_ppl")
        dropped = evaluation.drop_one(args.sequences, args.steps)
        if dropped is not None:
            yield _line(dropped, f"nll@{args.steps[0]}")
        yield _line(evaluation.information(min(max(args.steps), 8)), "information")
    yield f"records: {folder}"


def policies(words: Sequence[str], evaluation: Evaluation) -> list[dict[str, Any]]:
    """``best_of_m selector=evidence`` as settings: the group's file with what was changed.

    ``solo component=all`` is one policy a component.

    Raises:
        UserError: no such policy or no such setting of it.
    """
    name, *words = words
    changes = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise UserError(f"--policy {name} {word}: give settings as key=value.")
        changes[key] = yaml.safe_load(value)
    settings = policy_settings(name, **changes)
    if settings.get("component") == "all":
        return [{**settings, "component": k} for k in range(evaluation.sequence_components)]
    return [settings]


def run_folder(path: str | Path) -> Path:
    """The run folder of a run folder or of a checkpoint in it."""
    path = Path(path)
    return path if path.is_dir() else path.parent.parent


def open_run(path: str | Path, device: str = "cpu") -> LoadedRun:
    """Loads a run folder's best checkpoint, or the checkpoint that is named.

    Raises:
        UserError: nothing there, or an M that has no latent kernel.
    """
    folder = run_folder(path)
    if not (folder / CONFIG).is_file():
        raise UserError(f"{path} is neither a run folder nor a checkpoint in one.")
    kind = OmegaConf.select(OmegaConf.load(folder / CONFIG), "model.type")
    if kind != "lkf":
        raise UserError(
            f"{folder} was trained with model.type={kind}: bring it over with "
            "scripts/import_checkpoint.py, or evaluate it by mode=sample_eval."
        )
    checkpoint = None if Path(path).is_dir() else str(path)
    return load_run(folder, device, checkpoint)


def _line(record: Record, metric: str | None) -> str:
    shown = [metric] if metric else []
    shown += [key for key in ("entropy", "pooled_entropy", "share_entropy") if key != metric]
    parts = []
    for key in shown:
        if key in record.metrics:
            estimate = record.metrics[key]
            error = "" if estimate.se is None else f" +- {estimate.se:.2g}"
            parts.append(f"{key} {estimate.value:.4g}{error}")
    spent = record.value("calls")
    calls = "" if spent is None else f"; {spent:g} calls"
    return f"{record.name}: {', '.join(parts)}{calls}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Measures a trained run.")
    parser.add_argument("run", help="run folder, or a checkpoint in one")
    parser.add_argument(
        "--policy", nargs="+", action="append", metavar="NAME [KEY=VALUE]",
        help="a file of configs/decode with changes; repeat for more (default: commit)",
    )  # fmt: skip
    parser.add_argument("--steps", type=int, nargs="+", default=list(STEPS), help="J")
    parser.add_argument("--samples", type=int, default=128, help="samples per cell")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--judge", help="causal language model: name, folder or smollm2")
    parser.add_argument(
        "--mauve", nargs="?", const=FEATURIZER, metavar="MODEL",
        help=f"MAUVE against held-out texts, features of MODEL (default: {FEATURIZER})",
    )  # fmt: skip
    parser.add_argument("--out", help="folder of the records (default: RUN/records)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=None, help="CPU threads")
    parser.add_argument("--batch-size", type=int, default=64, help="samples decoded at once")
    parser.add_argument("--sequences", type=int, default=256, help="held-out sequences")
    parser.add_argument("--self-bleu", type=int, default=100, help="texts in self-BLEU; 0: none")
    parser.add_argument(
        "--judged-chains", type=int, default=None, help="chains per component heard by the judge"
    )
    parser.add_argument(
        "--plain", action="store_true", help="samples only: no attribution, ends, likelihood"
    )
    parser.add_argument("--again", action="store_true", help="run cells whose record is there")
    return parser

"""``lkf compare RUN RUN ...``: what differs between runs, and what that is worth.

All runs are asked about the same held-out sequences under the same times, masks and reveal
patterns, so that a difference is far more precise than the two figures that it is between.

Shape legend: B sequences. Unit: nats per token.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from lkf_plugin.decode.noise import mix
from lkf_plugin.errors import UserError
from lkf_plugin.evaluate.few_step import few_step
from lkf_plugin.evaluate.likelihood import nats_of_draws, ratio_per_token
from lkf_plugin.failures import foreseen
from lkf_plugin.progress import bar
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.markdown import markdown_table
from lkf_plugin.report.runs import differing
from lkf_plugin.runs.load import LoadedRun, load_run
from lkf_plugin.runs.settings import flatten, plain


class Compared(NamedTuple):
    """One run's figures.

    Attributes:
        name: of its folder.
        nats: figure -> nats of each sequence [B], the NELBO and the few-step NELBO of each J.
        tokens_B: counted tokens of each sequence.
    """

    name: str
    nats: dict[str, np.ndarray]
    tokens_B: np.ndarray


def compared(
    run: LoadedRun, name: str, sequences: int, steps: Sequence[int], draws: int, seed: int
) -> Compared:
    """Asks one run about the first held-out sequences."""
    few = few_step(run, steps, sequences, seed)
    rows = run.prepared.valid
    assert rows is not None
    chunk = rows[: min(sequences, len(rows))]
    device = run.module.device
    x_BL = torch.as_tensor(chunk["input_ids"]).to(device)
    valid_BL = torch.as_tensor(chunk["attention_mask"]).to(device) > 0
    size, parts = int(run.config.loader.eval_batch_size), []
    for first in bar(range(0, len(x_BL), size), "likelihood", "batch"):
        part = slice(first, first + size)
        seed_B = mix(seed, first + torch.arange(len(x_BL[part]), device=device))
        drawn = nats_of_draws(run, x_BL[part], valid_BL[part], seed_B, draws)
        parts.append(torch.stack([one.marginal_B for one in drawn]).mean(0).cpu().numpy())
    nats = {"nelbo": np.concatenate(parts)}
    nats |= {f"nll@{J}": np.array(few.sequences[f"nll@{J}"]) for J in steps}
    return Compared(name, nats, valid_BL.sum(-1).cpu().numpy())


def difference(one: Compared, other: Compared, figure: str) -> Estimate:
    """``one`` less ``other``, paired over sequences."""
    gap_B = one.nats[figure] - other.nats[figure]
    tokens = one.tokens_B.mean()
    spread = gap_B.std(ddof=1) if len(gap_B) > 1 else math.nan
    return Estimate(gap_B.mean() / tokens, spread / math.sqrt(len(gap_B)) / tokens, len(gap_B))


def require_comparable(runs: Sequence[LoadedRun], names: Sequence[str]) -> None:
    """Refuses runs without the same data and tokenizer, or that are not latent-kernel networks.

    Raises:
        UserError: names the run.
    """
    for run, name in zip(runs, names, strict=True):
        if run.config.model.type != "lkf":
            raise UserError(
                f"{name} has model.type={run.config.model.type}: lkf compare takes runs of "
                "model=lkf (M = 1 is MDLM); lkf report shows any."
            )
        if run.prepared.digest != runs[0].prepared.digest:
            raise UserError(
                f"{name} has other data or another tokenizer than {names[0]}: likelihoods per "
                "token do not compare."
            )


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints two tables; a mistake is told in one sentence with status 2."""
    parser = argparse.ArgumentParser(
        prog="lkf compare", description="Runs beside the first of them, paired over sequences."
    )
    parser.add_argument("runs", type=Path, nargs="+", help="run folders, at least two")
    parser.add_argument("--steps", type=int, nargs="+", default=[1, 2, 4, 8], help="J")
    parser.add_argument("--sequences", type=int, default=256, help="held-out sequences")
    parser.add_argument("--draws", type=int, default=8, help="of (tau, mask) for the NELBO")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args(arguments)
    try:
        print(_tables(args))
    except Exception as error:
        words = foreseen(error)
        if words is None:
            raise
        print(f"error: {words[0]}", file=sys.stderr)
        return words[1]
    return 0


def _tables(args: argparse.Namespace) -> str:
    if len(args.runs) < 2:
        raise UserError("lkf compare takes at least two run folders.")
    if min(args.steps) < 1 or args.sequences < 1 or args.draws < 1:
        raise UserError("--steps, --sequences and --draws must be at least 1.")
    names = [str(path) for path in args.runs]
    runs = [load_run(path, args.device) for path in args.runs]
    require_comparable(runs, names)
    settings = [flatten(plain(run.config)) for run in runs]
    keys = [key for key in differing(settings) if not key.startswith("init")]
    rows = [[key, *(str(one.get(key, "")) for one in settings)] for key in keys]
    parts = [markdown_table(["setting", *names], rows), ""] if rows else []
    likelihoods = [
        compared(run, name, args.sequences, args.steps, args.draws, args.seed)
        for run, name in zip(runs, names, strict=True)
    ]
    columns = ["nats per token", *names, *(f"{one} - {names[0]}" for one in names[1:])]
    table = []
    for figure in likelihoods[0].nats:
        own = [_shown(ratio_per_token(one.nats[figure], one.tokens_B)) for one in likelihoods]
        gaps = [_shown(difference(one, likelihoods[0], figure)) for one in likelihoods[1:]]
        table.append([figure, *own, *gaps])
    parts += [markdown_table(columns, table), ""]
    parts.append(
        f"{len(likelihoods[0].tokens_B)} held-out sequences, {args.draws} draws, seed {args.seed}; "
        "standard errors over sequences, of the differences over the same ones."
    )
    return "\n".join(parts)


def _shown(estimate: Estimate) -> str:
    error = "" if estimate.se is None else f" ± {estimate.se:.2g}"
    return f"{estimate.value:.4f}{error}"

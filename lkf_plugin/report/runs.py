"""What the run folders under a folder hold: the settings that differ, and their evaluations.

``config.yaml`` says what was trained, ``metrics.csv`` how it went, ``likelihoods/*.json``
(mode=ppl_eval) and ``samples/*.json`` (mode=sample_eval) what was evaluated.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lkf_plugin.errors import UserError
from lkf_plugin.metrics_file import STEP, curve, read_metrics
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.evaluation_name import PLACE_AND_LOG
from lkf_plugin.runs.settings import CONFIG, flatten, load_settings

# Settings of the place, the log or the evaluation: they do not make two runs different ones.
NOT_OF_THE_RUN = (
    *PLACE_AND_LOG,
    "mode",
    "eval",
    "sampling",
    "decode",
    "data.cache_dir",
    "loader.num_workers",
    "loader.pin_memory",
    "loader.eval_batch_size",
    "loader.eval_global_batch_size",
    "model.name",  # made of others
)
HEADLINES = ("gen_ppl", "valid", "entropy")  # what quality against J shows, the first there is
# What tells evaluations of one run with the same J apart.
APART = ("policy", "seed", "predictor", "ema", "precision", "eps", "step")


@dataclass
class Run:
    """One run folder.

    Attributes:
        name: of the folder, below the folder of all runs.
        settings: what it was trained with, by dotted key.
        curve: (step, val/nll in nats per token) of its validations.
        steps: optimizer steps that its log shows.
        likelihoods: contents of its likelihood evaluations.
        samples: contents of its sample evaluations.
    """

    name: str
    settings: dict[str, Any]
    curve: list[tuple[int, float]]
    steps: int
    likelihoods: list[dict[str, Any]]
    samples: list[dict[str, Any]]


@dataclass
class SideBySide:
    """All runs under a folder.

    Attributes:
        runs: in the order of their settings.
        keys: the settings that differ.
        left_out: run folders that cannot be read, and why.
    """

    runs: list[Run]
    keys: list[str]
    left_out: dict[str, str] = field(default_factory=dict)


def read_runs(folder: Path) -> SideBySide:
    """Every run under a folder, itself included.

    Raises:
        UserError: there is none.
    """
    runs: list[Run] = []
    left_out: dict[str, str] = {}
    for path in sorted(folder.rglob(CONFIG)):
        name = str(path.parent.relative_to(folder)) if path.parent != folder else folder.name
        try:
            runs.append(_read_run(path.parent, name))
        except (UserError, OSError, ValueError, KeyError, TypeError) as error:
            left_out[name] = str(error).splitlines()[0] if str(error) else type(error).__name__
    if not runs:
        why = "".join(f"; {name}: {reason}" for name, reason in left_out.items())
        raise UserError(f"There is no run folder under {folder}{why}: train one first.")
    keys = differing([run.settings for run in runs])
    runs.sort(key=lambda run: [_order(run.settings.get(key)) for key in keys])
    return SideBySide(runs, keys, left_out)


def has_runs(folder: Path) -> bool:
    """Whether a run folder lies in a folder, or is it."""
    return any(True for _ in folder.rglob(CONFIG))


def differing(settings: Sequence[dict[str, Any]]) -> list[str]:
    """Keys of the runs' own settings that do not have one value in all runs, sorted."""
    keys = sorted(set().union(*settings))
    own = (
        key for key in keys if not any(key == k or key.startswith(f"{k}.") for k in NOT_OF_THE_RUN)
    )
    return [key for key in own if len({repr(one.get(key)) for one in settings}) > 1]


def _order(value: Any) -> tuple[int, float, str]:
    """Numbers by size, then texts; what is not set comes first."""
    if value is None:
        return 0, 0.0, ""
    if isinstance(value, int | float):
        return 1, float(value), ""
    return 2, 0.0, str(value)


def _read_run(folder: Path, name: str) -> Run:
    settings = load_settings(folder)
    assert settings is not None
    rows = read_metrics(folder / "metrics.csv").rows
    steps = max((int(row[STEP]) for row in rows), default=0)
    return Run(
        name,
        flatten(settings),
        curve(rows, "val/nll"),
        steps,
        _evaluations(folder, "likelihoods", "ppl_eval.json"),
        _evaluations(folder, "samples", "sample_eval.json"),
    )


def _evaluations(folder: Path, place: str, newest: str) -> list[dict[str, Any]]:
    """Contents of the evaluations' files; of a run from before they had names, the newest."""
    paths = sorted((folder / place).glob("*.json"))
    if not paths and (folder / newest).is_file():
        paths = [folder / newest]
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


# --- figures of a run ----------------------------------------------------------------------------


def best_validation(run: Run) -> tuple[int, float] | None:
    """(step, val/nll) of its lowest validation."""
    return min(run.curve, key=lambda point: point[1], default=None)


def nll(evaluation: dict[str, Any]) -> Estimate:
    """val/nll of a likelihood evaluation, in nats per token, with its error over sequences."""
    estimate = evaluation.get("likelihood", {}).get("nelbo")
    if estimate is None:
        return Estimate(evaluation["metrics"]["val/nll"])
    return Estimate(estimate["value"], estimate["se"], estimate["n"])


def quality(evaluation: dict[str, Any]) -> dict[str, Estimate]:
    """All figures of one sample evaluation by name; a judge's carries the judge."""
    figures = {
        name: Estimate(one["value"], one["se"], one["n"])
        for name, one in evaluation.get("diversity", {}).items()
    }
    judged = evaluation.get("metrics", {})
    if "gen_ppl" in judged:
        figures[f"gen_ppl[{judged['judge']}]"] = Estimate(
            judged["gen_ppl"], judged["gen_ppl_se"], evaluation["num_samples"]
        )
    return figures


def headline(side: SideBySide) -> str | None:
    """The figure that quality against J shows: one that most evaluations have."""
    names = [name for run in side.runs for one in run.samples for name in quality(one)]
    for wanted in HEADLINES:
        fitting = sorted({n for n in names if n == wanted or n.startswith(f"{wanted}[")})
        if fitting:
            return max(fitting, key=names.count)
    return None


def curves(side: SideBySide, metric: str) -> dict[tuple[str, str], dict[int, Estimate]]:
    """Quality by J, of each (run, kind of evaluation).

    The kind names the policy, and what else differs between the evaluations shown.
    """
    every = [(run.name, one) for run in side.runs for one in run.samples]
    apart = [key for key in APART[1:] if len({repr(one.get(key)) for _, one in every}) > 1]
    # a seed or step that only repeats its run's tells nothing
    apart = [key for key in apart if _differs_within(every, key)]
    decode = _decode_apart([one for _, one in every])
    figures: dict[tuple[str, str], dict[int, Estimate]] = {}
    for name, one in every:
        figure = quality(one).get(metric)
        if figure is None or one.get("prompt") is not None:
            continue
        flat = {f"decode.{key}": value for key, value in one.get("decode", {}).items()}
        own = decode[str(one["policy"])]
        more = [f"{key}={({**one, **flat}).get(key)}" for key in (*apart, *own)]
        kind = " ".join([str(one["policy"]), *more])
        figures.setdefault((name, kind), {})[int(one["sampling_steps"])] = figure
    return {place: dict(sorted(points.items())) for place, points in figures.items()}


def _decode_apart(every: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Settings of each policy that tell its own evaluations apart."""
    by_policy: dict[str, list[dict[str, Any]]] = {}
    for one in every:
        by_policy.setdefault(str(one["policy"]), []).append(one.get("decode", {}))
    return {
        policy: [f"decode.{key}" for key in differing(settings) if key != "policy"]
        for policy, settings in by_policy.items()
    }


def _differs_within(every: list[tuple[str, dict[str, Any]]], key: str) -> bool:
    """Whether a key has several values among the evaluations of one run."""
    values: dict[str, set[str]] = {}
    for name, one in every:
        values.setdefault(name, set()).add(repr(one.get(key)))
    return any(len(one) > 1 for one in values.values())

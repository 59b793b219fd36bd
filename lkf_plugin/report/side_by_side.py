"""Runs side by side: the settings that differ, their likelihoods, and quality against J.

Everything is read from the run folders: ``config.yaml`` (what was trained), ``metrics.csv``,
``likelihoods/*.json`` (mode=ppl_eval) and ``samples/*.json`` (mode=sample_eval).
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lkf_plugin.errors import UserError
from lkf_plugin.runs.settings import CONFIG, flatten, load_settings

# Settings of the place, the log or the evaluation: they do not make two runs different ones.
NOT_OF_THE_RUN = (
    "mode",
    "run_dir",
    "checkpointing",
    "callbacks",
    "logger",
    "wandb",
    "experiment",
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


@dataclass(frozen=True)
class Figure:
    """A number with its standard error, as the run folder has it."""

    value: float
    se: float | None = None
    n: int | None = None

    def __str__(self) -> str:
        return f"{self.value:.4g}" if self.se is None else f"{self.value:.4g} ± {self.se:.2g}"


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
    rows = _rows(folder / "metrics.csv")
    curve = [(int(row["step"]), float(row["val/nll"])) for row in rows if row.get("val/nll")]
    steps = max((int(row["step"]) for row in rows), default=0)
    return Run(
        name,
        flatten(settings),
        curve,
        steps,
        _evaluations(folder, "likelihoods", "ppl_eval.json"),
        _evaluations(folder, "samples", "sample_eval.json"),
    )


def _rows(path: Path) -> list[dict[str, str]]:
    """Whole rows of a log; one that is being written may lack its end."""
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if None not in row.values()]


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


def nll(evaluation: dict[str, Any]) -> Figure:
    """val/nll of a likelihood evaluation, in nats per token, with its error over sequences."""
    estimate = evaluation.get("likelihood", {}).get("nelbo")
    if estimate is None:
        return Figure(evaluation["metrics"]["val/nll"])
    return Figure(estimate["value"], estimate["se"], estimate["n"])


def quality(evaluation: dict[str, Any]) -> dict[str, Figure]:
    """All figures of one sample evaluation by name; a judge's carries the judge."""
    figures = {
        name: Figure(one["value"], one["se"], one["n"])
        for name, one in evaluation.get("diversity", {}).items()
    }
    judged = evaluation.get("metrics", {})
    if "gen_ppl" in judged:
        figures[f"gen_ppl[{judged['judge']}]"] = Figure(
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


def curves(side: SideBySide, metric: str) -> dict[tuple[str, str], dict[int, Figure]]:
    """Quality by J, of each (run, kind of evaluation).

    The kind names the policy, and what else differs between the evaluations shown.
    """
    every = [(run.name, one) for run in side.runs for one in run.samples]
    apart = [key for key in APART[1:] if len({repr(one.get(key)) for _, one in every}) > 1]
    # a seed or step that only repeats its run's tells nothing
    apart = [key for key in apart if _differs_within(every, key)]
    decode = _decode_apart([one for _, one in every])
    found: dict[tuple[str, str], dict[int, Figure]] = {}
    for name, one in every:
        figure = quality(one).get(metric)
        if figure is None or one.get("prompt") is not None:
            continue
        flat = {f"decode.{key}": value for key, value in one.get("decode", {}).items()}
        own = decode[str(one["policy"])]
        more = [f"{key}={({**one, **flat}).get(key)}" for key in (*apart, *own)]
        kind = " ".join([str(one["policy"]), *more])
        found.setdefault((name, kind), {})[int(one["sampling_steps"])] = figure
    return {place: dict(sorted(points.items())) for place, points in found.items()}


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


# --- tables --------------------------------------------------------------------------------------


def run_table(side: SideBySide) -> tuple[list[str], list[list[str]]]:
    """Columns and rows: the settings that differ, the validations, and each likelihood."""
    columns = ["run", *side.keys, "steps", "best val/nll", "at step", "val/nll ± se", "of"]
    rows = []
    for run in side.runs:
        best = best_validation(run)
        shown = [run.name, *(_shown(run.settings.get(key)) for key in side.keys), str(run.steps)]
        shown += ["", ""] if best is None else [f"{best[1]:.4f}", str(best[0])]
        evaluated = [[str(nll(one)), _likelihood_of(one)] for one in run.likelihoods] or [["", ""]]
        rows += [[*shown, *cells] for cells in evaluated]
    return columns, rows


def _likelihood_of(evaluation: dict[str, Any]) -> str:
    parts = [Path(str(evaluation.get("checkpoint", ""))).name, f"step {evaluation.get('step')}"]
    return ", ".join(parts + ([] if evaluation.get("ema", True) else ["no average"]))


def quality_table(side: SideBySide, metric: str) -> tuple[list[str], list[list[str]]]:
    """Columns and rows: quality against J."""
    found = curves(side, metric)
    steps = sorted({J for points in found.values() for J in points})
    rows = [
        [name, kind, *(str(points[J]) if J in points else "" for J in steps)]
        for (name, kind), points in found.items()
    ]
    return ["run", "decoded by", *(f"J={J}" for J in steps)], rows


def _shown(value: Any) -> str:
    return "" if value is None else str(value)


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(c.replace("|", "\\|") for c in one) + " |" for one in lines)


def markdown(side: SideBySide) -> str:
    """The whole page."""
    parts = ["# Runs side by side", "", markdown_table(*run_table(side)), ""]
    parts += [
        "`best val/nll` is the lowest validation during training; `val/nll ± se` is mode=ppl_eval, "
        "with the standard error over sequences. Both in nats per token.",
        "",
    ]
    digests = {one.get("data_digest") for run in side.runs for one in run.likelihoods}
    if len(digests) > 1:
        parts += ["**The runs have different data or tokenizers: val/nll does not compare.**", ""]
    if metric := headline(side):
        parts += [f"## {metric} against J", "", markdown_table(*quality_table(side, metric)), ""]
    if side.left_out:
        parts += ["## Left out", ""]
        parts += [f"* `{name}`: {reason}" for name, reason in side.left_out.items()]
        parts.append("")
    return "\n".join(parts)


def runs_csv(side: SideBySide) -> str:
    """One row per run and likelihood, with full precision."""
    columns = ["run", *side.keys, "steps", "best_val_nll", "best_step"]
    columns += ["val_nll", "val_nll_se", "sequences", "checkpoint", "evaluated_step", "ema"]
    rows: list[list[Any]] = []
    for run in side.runs:
        best = best_validation(run) or (None, None)
        own = [run.name, *(run.settings.get(key) for key in side.keys), run.steps, best[1], best[0]]
        evaluations: list[dict[str, Any] | None] = [*run.likelihoods] or [None]
        for one in evaluations:
            cells: list[Any] = [None] * 6
            if one is not None:
                figure = nll(one)
                checkpoint = Path(str(one.get("checkpoint", ""))).name
                cells = [
                    figure.value,
                    figure.se,
                    figure.n,
                    checkpoint,
                    one.get("step"),
                    one.get("ema"),
                ]
            rows.append([*own, *cells])
    return _csv(columns, rows)


def quality_csv(side: SideBySide) -> str:
    """One row per run, sample evaluation and figure."""
    own = [f"evaluated {key}" if key in side.keys else key for key in APART]
    columns = ["run", *side.keys, *own, "J", "metric", "value", "se", "n"]
    rows = [
        [
            run.name,
            *(run.settings.get(key) for key in side.keys),
            *(one.get(key) for key in APART),
            one["sampling_steps"],
            name,
            figure.value,
            figure.se,
            figure.n,
        ]
        for run in side.runs
        for one in run.samples
        for name, figure in sorted(quality(one).items())
    ]
    return _csv(columns, rows)


def _csv(columns: list[str], rows: list[list[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([["" if cell is None else cell for cell in row] for row in rows])
    return out.getvalue()


# --- figure --------------------------------------------------------------------------------------


def draw(side: SideBySide, path: Path) -> Path:
    """val/nll against the step, and beside it quality against J where samples were evaluated."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    metric = headline(side)
    found = curves(side, metric) if metric else {}
    panels = 1 + bool(found)
    figure, axes = pyplot.subplots(1, panels, figsize=(6.4 * panels, 4.4), squeeze=False)
    colors = {
        run.name: pyplot.get_cmap("viridis")(i / max(len(side.runs) - 1, 1) * 0.9)
        for i, run in enumerate(side.runs)
    }
    labels = {run.name: _label(run, side.keys) for run in side.runs}
    left = axes[0][0]
    for run in side.runs:
        if run.curve:
            steps, values = zip(*run.curve, strict=True)
            left.plot(
                steps, values, marker="o", ms=3, color=colors[run.name], label=labels[run.name]
            )
    left.set_xlabel("optimizer step")
    left.set_ylabel("val/nll, nats per token")
    if found and metric:
        right = axes[0][1]
        markers = dict(zip(dict.fromkeys(kind for _, kind in found), "osD^vP*X" * 8, strict=False))
        for (name, kind), points in found.items():
            right.errorbar(
                list(points),
                [one.value for one in points.values()],
                [one.se or 0.0 for one in points.values()],
                marker=markers[kind],
                ms=4,
                capsize=2,
                color=colors[name],
                label=f"{labels[name]}, {kind}",
            )
        right.set_xscale("log", base=2)
        if metric.startswith("gen_ppl") and all(
            math.isfinite(one.value) and one.value > 0 for p in found.values() for one in p.values()
        ):
            right.set_yscale("log")
        right.set_xlabel("steps J")
        right.set_ylabel(metric)
    for one in axes[0]:
        one.grid(alpha=0.25)
        if one.get_legend_handles_labels()[0]:
            many = len(one.get_legend_handles_labels()[0]) > 6
            place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14)} if many else {}
            one.legend(fontsize=7, ncols=1 + many, **place)
    figure.tight_layout()
    figure.savefig(path, dpi=150, bbox_inches="tight")
    pyplot.close(figure)
    return path


def _label(run: Run, keys: Sequence[str]) -> str:
    """What distinguishes a run, in as few words as possible."""
    short = [key.rpartition(".")[2] for key in keys]
    parts = [
        f"{one if short.count(one) == 1 else key}={Path(str(run.settings[key])).name}"
        for key, one in zip(keys, short, strict=True)
        if run.settings.get(key) is not None
    ]
    return ", ".join(parts[:4]) or run.name


def write_side_by_side(folder: Path, out: Path, figures: bool = True) -> list[Path]:
    """Writes ``runs.md``, ``runs.csv``, ``quality.csv`` and ``runs.png``.

    Returns:
        The files that were written.

    Raises:
        UserError: there is no run.
    """
    side = read_runs(folder)
    out.mkdir(parents=True, exist_ok=True)
    texts = {"runs.md": markdown(side), "runs.csv": runs_csv(side)}
    if headline(side):
        texts["quality.csv"] = quality_csv(side)
    written = []
    for name, text in texts.items():
        (out / name).write_text(text, encoding="utf-8")
        written.append(out / name)
    return [*written, draw(side, out / "runs.png")] if figures else written

"""A study's tables, from its records alone: bounds against J, differences, samples.

Unit: nats per token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from experiments.latents.arms import STUDIES, Study
from experiments.latents.measure import ARM, CEILING, KNOWN, NATS, SEED, STEPS, TRAINED
from lkf_plugin.data.corpus import VALID
from lkf_plugin.errors import UserError
from lkf_plugin.evaluate.run_records import LIKELIHOOD
from lkf_plugin.likelihood.few_step import paired_difference
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.markdown import markdown_table
from lkf_plugin.records.record import Record
from lkf_plugin.records.store import read_records

ENTROPY = "configuration_entropy"
SURE = 3.0  # standard errors from which a difference is said to be one


@dataclass(frozen=True)
class Measured:
    """One run of a study.

    Attributes:
        arm, seed: which.
        likelihood: its record of bounds.
        samples: J -> record of samples.
    """

    arm: str
    seed: int
    likelihood: Record
    samples: Mapping[int, Record]

    def nats(self, J: int, frozen: bool = False) -> torch.Tensor:
        """Bound of each sequence, nats per token, [B]."""
        series = self.likelihood.series[NATS]
        sums = series[f"nll{'_frozen' if frozen else ''}@{J}"]
        return torch.tensor(sums, dtype=torch.float64) / torch.tensor(series["tokens"])


def read_study(name: str, records: Path) -> list[Measured]:
    """The runs of a study that were measured, in the order of its tables.

    Raises:
        UserError: there is none.
    """
    records_of_study = read_records(records)
    bounds = {_place(one): one for one in records_of_study if one.kind == LIKELIHOOD}
    drawn: dict[tuple[str, int], dict[int, Record]] = {}
    for one in records_of_study:
        if one.kind != LIKELIHOOD:
            drawn.setdefault(_place(one), {})[int(str(one.labels[STEPS]))] = one
    runs = [
        Measured(arm, seed, bounds[arm, seed], drawn.get((arm, seed), {}))
        for arm in STUDIES[name].rows
        for seed in sorted(seed for own, seed in bounds if own == arm)
    ]
    if not runs:
        raise UserError(f"{records} holds no record: make some by scripts/latents.py {name}.")
    return runs


def _place(record: Record) -> tuple[str, int]:
    return str(record.labels[ARM]), int(str(record.labels[SEED]))


def likelihood_table(study: Study, runs: Sequence[Measured]) -> str:
    """Bounds of every run at each J, what EM reaches at J = 1, and what training cost."""
    many = len({run.seed for run in runs}) > 1
    head = ["nats per token", *(["seed"] if many else []), "steps", "CPU s"]
    head += ["EM, J=1", *(f"J={J}" for J in study.steps)]
    lines = []
    for run in runs:
        record = run.likelihood
        cost = record.value(TRAINED)
        line = [run.arm, *([str(run.seed)] if many else []), str(record.labels["trained_steps"])]
        line += ["" if cost is None else f"{cost:.0f}", f"{record.value(CEILING):.3f}"]
        lines.append([*line, *(f"{record.value(f'nll@{J}'):.4f}" for J in study.steps)])
    worst = max(run.likelihood.metrics[f"nll@{J}"].se or 0.0 for run in runs for J in study.steps)
    sequences = runs[0].likelihood.samples
    note = f"{sequences} held-out sequences; standard errors at most {worst:.4f}."
    if study.optimum is not None:
        note += f" No model can be below {study.optimum:.4f} in expectation."
    return f"{markdown_table(head, lines)}\n\n{note}"


def difference_table(study: Study, runs: Sequence[Measured]) -> str:
    """Each run against the baseline of its seed: paired over sequences, with standard errors."""
    base = {run.seed: run for run in runs if run.arm == study.baseline}
    head = [f"less {study.baseline}", *(f"J={J}" for J in study.steps)]
    lines = []
    for run in runs:
        if run.arm == study.baseline or run.seed not in base:
            continue
        label = run.arm if len(base) == 1 else f"{run.arm}, seed {run.seed}"
        apart = [paired_difference(run.nats(J), base[run.seed].nats(J)) for J in study.steps]
        lines.append([label, *map(_signed, apart)])
    return markdown_table(head, lines)


def _signed(difference: Estimate) -> str:
    """Bold where it is below zero by three standard errors."""
    assert difference.se is not None
    text = f"{difference.value:+.4f} ({difference.se:.4f})"
    return f"**{text}**" if difference.value < -SURE * difference.se else text


def sample_table(study: Study, runs: Sequence[Measured]) -> str:
    """What the samples are worth: the grammar's verdict with its entropy, or known words."""
    drawn = [run for run in runs if run.samples]
    many = len({run.seed for run in runs}) > 1
    figure = VALID if any(VALID in one.metrics for one in drawn[0].samples.values()) else KNOWN
    beside = ENTROPY if figure == VALID else "pooled_entropy"
    what = {VALID: "valid (configuration entropy)", KNOWN: "known words (entropy of characters)"}
    head = [what[figure], *(["seed"] if many else []), *(f"J={J}" for J in study.steps)]
    lines = [
        [run.arm, *([str(run.seed)] if many else []),
         *(_sample(run.samples[J], figure, beside) for J in study.steps)]
        for run in drawn
    ]  # fmt: skip
    errors = [one.metrics[figure].se or 0.0 for run in drawn for one in run.samples.values()]
    count = next(iter(drawn[0].samples.values())).samples
    note = f"{count} samples of one chain each; standard errors at most {max(errors):.3f}."
    if figure == VALID:
        perfect = [
            one.value(f"{ENTROPY}_of_as_many_perfect")
            for run in drawn if run.arm == "tree" for one in run.samples.values()
        ]  # fmt: skip
        least = min(filter(None, perfect))
        note += f" Where the tree stands, as many perfect samples show {least:.2f} nats or more."
    return f"{markdown_table(head, lines)}\n\n{note}"


def _sample(record: Record, figure: str, beside: str) -> str:
    entropy = record.value(beside)
    shown = "-" if entropy is None else f"{entropy:.2f}"
    return f"{record.value(figure):.3f} ({shown})"


def render(name: str, records: Path) -> str:
    """All tables of a study, as Markdown."""
    study, runs = STUDIES[name], read_study(name, records)
    parts = [likelihood_table(study, runs), difference_table(study, runs)]
    if any(run.samples for run in runs):
        parts.append(sample_table(study, runs))
    return "\n\n".join(parts)


def tables(records: Path) -> dict[str, str]:
    """Name of a study -> its tables, for the page: of the studies that have a folder of records.

    Raises:
        UserError: there is none.
    """
    kept = [name for name in STUDIES if (records / name).is_dir()]
    if not kept:
        known = ", ".join(STUDIES)
        raise UserError(f"{records} has no folder of a study: copy records of {known}.")
    return {name: render(name, records / name) for name in kept}

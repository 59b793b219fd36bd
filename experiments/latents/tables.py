"""A study's tables, from its records alone: bounds against J, differences, samples.

Unit: nats per token.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from experiments.latents.arms import AUTOREGRESSIVE, DROPPED, ENDLESS, SAMPLED, STUDIES, Study
from experiments.latents.measure import ARM, CEILING, EXACT, KNOWN, NATS, SEED, STEPS, TRAINED
from lkf_plugin.data.corpus import VALID
from lkf_plugin.errors import UserError
from lkf_plugin.evaluate.evaluation import DROP_ONE
from lkf_plugin.evaluate.run_records import LIKELIHOOD
from lkf_plugin.likelihood.few_step import paired_difference, share_closed
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.markdown import markdown_table
from lkf_plugin.records.record import Record
from lkf_plugin.records.store import read_records

ENTROPY = "configuration_entropy"
PERPLEXITY = "gen_ppl"  # begins the judge's figure
SURE = 3.0  # standard errors from which a difference is said to be one


@dataclass(frozen=True)
class Sampled:
    """One run of a study, and what it draws.

    Attributes:
        arm, seed: which.
        samples: J -> records of samples, one for each seed of sampling.
    """

    arm: str
    seed: int
    samples: Mapping[int, Sequence[Record]]


@dataclass(frozen=True)
class Measured(Sampled):
    """One run whose few-step samplers have bounds.

    Attributes:
        likelihood: its record of bounds.
        dropped: the bounds with each component taken away, where there are several.
    """

    likelihood: Record
    dropped: Record | None = None

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
    kept = read_records(records)
    drawn = _samples(kept)
    nats = [one for one in kept if one.kind == LIKELIHOOD]
    bounds = {_place(one): one for one in nats if one.row != DROP_ONE}
    dropped = {_place(one): one for one in nats if one.row == DROP_ONE}
    runs = [
        Measured(arm, seed, drawn.get((arm, seed), {}), bounds[arm, seed], dropped.get((arm, seed)))
        for arm in STUDIES[name].rows
        if arm != AUTOREGRESSIVE
        for seed in sorted(seed for own, seed in bounds if own == arm)
    ]
    if not runs:
        raise UserError(f"{records} holds no record: make some by scripts/latents.py {name}.")
    return runs


def read_sampled(records: Path) -> list[Sampled]:
    """The runs beside a study of which there are samples alone, one for each seed."""
    drawn = sorted(_samples(read_records(records)).items())
    return [Sampled(arm, seed, own) for (arm, seed), own in drawn if arm == SAMPLED]


def read_exact(records: Path) -> list[Record]:
    """The exact likelihoods of the autoregressive models beside a study, one for each seed."""
    exact = [one for one in read_records(records) if one.labels[ARM] == AUTOREGRESSIVE]
    return sorted(exact, key=_place)


def _samples(records: Iterable[Record]) -> dict[tuple[str, int], dict[int, list[Record]]]:
    drawn: dict[tuple[str, int], dict[int, list[Record]]] = {}
    sampled = (one for one in records if one.kind != LIKELIHOOD)
    for one in sorted(sampled, key=lambda one: int(str(one.settings["seed"]))):
        cells = drawn.setdefault(_place(one), {})
        cells.setdefault(int(str(one.labels[STEPS])), []).append(one)
    return drawn


def _place(record: Record) -> tuple[str, int]:
    return str(record.labels[ARM]), int(str(record.labels[SEED]))


def likelihood_table(study: Study, runs: Sequence[Measured], exact: Sequence[Record] = ()) -> str:
    """Bounds of every run at each J, what EM reaches at J = 1, and what training cost.

    Args:
        study: whose runs they are.
        runs: the lines.
        exact: records of the autoregressive model, for the note.
    """
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
    for record in exact:
        seed = f" (seed {record.labels[SEED]})" if len(exact) > 1 else ""
        steps, cost = record.labels["trained_steps"], record.value(TRAINED)
        note += f" The autoregressive model{seed} has exactly {record.value(EXACT):.4f}"
        note += f" after {steps} steps, {cost:.0f} CPU s."
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


def share_table(study: Study, runs: Sequence[Measured]) -> str:
    """How much of what factorising a step costs is gone, for each run and J."""
    base = {run.seed: run for run in runs if run.arm == study.baseline}
    head = ["share of the cost of factorising that is closed", *(f"J={J}" for J in study.steps)]
    lines = []
    for run in runs:
        if run.arm == study.baseline or run.seed not in base:
            continue
        theirs = base[run.seed]
        label = run.arm if len(base) == 1 else f"{run.arm}, seed {run.seed}"
        shares = [
            share_closed(theirs.nats(J), run.nats(J), _endless(study, theirs)) for J in study.steps
        ]
        lines.append([label, *(f"{share.value:+.2f} ({share.se:.2f})" for share in shares)])
    return markdown_table(head, lines)


def dropped_table(study: Study, runs: Sequence[Measured]) -> str:
    """What is left of the difference without the component whose loss costs most."""
    base = {run.seed: run for run in runs if run.arm == study.baseline}
    head = [f"less {study.baseline}, the dearest component lost", *(f"J={J}" for J in DROPPED)]
    lines = []
    for run in runs:
        if run.dropped is None or run.seed not in base or run.arm == study.baseline:
            continue
        label = run.arm if len(base) == 1 else f"{run.arm}, seed {run.seed}"
        texts = []
        for J in DROPPED:
            without = [
                estimate.value
                for name, estimate in run.dropped.metrics.items()
                if name.startswith(f"nll@{J}.without[")
            ]
            theirs = base[run.seed].likelihood.value(f"nll@{J}")
            assert theirs is not None
            texts.append(f"{max(without) - theirs:+.4f}")
        lines.append([label, *texts])
    return markdown_table(head, lines) if lines else ""


def _endless(study: Study, baseline: Measured) -> torch.Tensor:
    """What the factorised model has where steps cost nothing: each sequence's, or the optimum."""
    if study.optimum is None:
        return baseline.nats(ENDLESS)
    return torch.full_like(baseline.nats(study.steps[0]), study.optimum)


def _signed(difference: Estimate) -> str:
    """Bold where it is below zero by three standard errors."""
    assert difference.se is not None
    text = f"{difference.value:+.4f} ({difference.se:.4f})"
    return f"**{text}**" if difference.value < -SURE * difference.se else text


def sample_table(study: Study, runs: Sequence[Sampled], figure: str) -> str:
    """What the samples are worth by one figure, with their entropy in brackets."""
    drawn = [run for run in runs if run.samples]
    many = len({run.seed for run in runs}) > 1
    beside = ENTROPY if figure == VALID else "pooled_entropy"
    what = {VALID: "valid (configuration entropy)", KNOWN: "known words (entropy of tokens)"}
    title = what.get(figure, f"{figure} (entropy of tokens)")
    head = [title, *(["seed"] if many else []), *(f"J={J}" for J in study.steps)]
    lines = [
        [run.arm, *([str(run.seed)] if many else []),
         *(_sample(run.samples[J], figure, beside) for J in study.steps)]
        for run in drawn
    ]  # fmt: skip
    cells = [cell for run in drawn for cell in run.samples.values()]
    seeds, digits = {len(cell) for cell in cells}, 3 if figure in what else 0
    errors = [one.metrics[figure].se or 0.0 for cell in cells for one in cell]
    note = f"{cells[0][0].samples} samples of one chain each"
    if seeds == {1}:
        note += f"; standard errors at most {max(errors):.{digits}f}."
    else:
        spread = max(statistics.stdev(_values(cell, figure)) for cell in cells if len(cell) > 1)
        note += f", by each of {max(seeds)} seeds of sampling, whose means these are: standard "
        note += f"errors of one at most {max(errors):.{digits}f}, standard deviations between "
        note += f"them at most {spread:.{digits}f}."
        if len(seeds) > 1:
            note += f" Cells of one seed: {sum(len(cell) == 1 for cell in cells)}."
    if figure == VALID:
        perfect = [
            one.value(f"{ENTROPY}_of_as_many_perfect")
            for run in drawn if run.arm == "tree" for cell in run.samples.values() for one in cell
        ]  # fmt: skip
        if told := [value for value in perfect if value is not None]:
            note += " Where the tree stands, as many perfect samples show "
            note += f"{min(told):.2f} nats or more."
    return f"{markdown_table(head, lines)}\n\n{note}"


def _figures(runs: Sequence[Sampled]) -> list[str]:
    """By which figures the samples are told: the grammar's, or known words and the judge's."""
    cells = [one for run in runs for cell in run.samples.values() for one in cell]
    metrics = {name for one in cells for name in one.metrics}
    told = [name for name in (VALID, KNOWN) if name in metrics]
    return told + sorted(name for name in metrics if name.startswith(PERPLEXITY))


def _sample(cell: Sequence[Record], figure: str, beside: str) -> str:
    entropy = _values(cell, beside)
    shown = f"{statistics.fmean(entropy):.2f}" if entropy else "-"
    value = statistics.fmean(_values(cell, figure))
    return f"{value:.0f} ({shown})" if value > 1 else f"{value:.3f} ({shown})"


def _values(cell: Sequence[Record], figure: str) -> list[float]:
    """A figure of every seed of sampling that has it."""
    values = [one.value(figure) for one in cell]
    return [value for value in values if value is not None]


def render(name: str, records: Path) -> str:
    """All tables of a study, as Markdown."""
    study, runs = STUDIES[name], read_study(name, records)
    parts = [likelihood_table(study, runs, read_exact(records))]
    parts += [difference_table(study, runs), share_table(study, runs)]
    parts += [dropped_table(study, runs)]
    drawn = [*runs, *read_sampled(records)]
    parts += [sample_table(study, drawn, figure) for figure in _figures(drawn)]
    return "\n\n".join(filter(None, parts))


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

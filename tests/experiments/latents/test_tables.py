"""Tables of structures side by side: made of records alone, differences paired, targets judged."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from experiments.latents import tables
from experiments.latents.arms import (
    AGREETEXT,
    AUTOREGRESSIVE,
    CHARACTERS,
    DROPPED,
    ENDLESS,
    SAMPLED,
)
from experiments.latents.figure import draw
from experiments.latents.measure import ARM, EXACT, KNOWN, SEED, STEPS, TRAINED
from experiments.latents.targets import render_targets, verdicts
from lkf_plugin.data.corpus import VALID
from lkf_plugin.errors import UserError
from lkf_plugin.evaluate.evaluation import DROP_ONE
from lkf_plugin.evaluate.run_records import LIKELIHOOD, SAMPLES
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.record import Record
from lkf_plugin.records.store import write_record
from tests.experiments.latents.conftest import COMMON, Write

TEXT = dataclasses.replace(CHARACTERS, steps=(1, 2))
BEST = AGREETEXT.optimum or 0.0
PERFECT = f"{tables.ENTROPY}_of_as_many_perfect"


def agreetext(write: Write, **tree: float) -> None:
    """Three runs of a seed; the tree's figures are good unless a test says otherwise."""
    good = {VALID: 0.95, tables.ENTROPY: 4.05, PERFECT: 4.09} | tree
    excess = good.pop("excess", 0.005)
    for arm, above in (("M1", 0.5), ("M8", 0.3), ("tree", excess)):
        by_J = {J: [BEST + above, BEST + above + 0.001] for J in AGREETEXT.steps}
        figures = good if arm == "tree" else {VALID: 0.05}
        write(arm, 1, by_J, {J: figures for J in AGREETEXT.steps})


def test_differences_are_paired_and_marked_where_they_are_sure(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # sequences differ by nats, and the chain is below each of them by nearly the same
    nats = {1: [2.0, 3.0, 4.0], 2: [2.0, 3.0, 4.0], ENDLESS: [1.0, 2.0, 3.0]}
    write("M1-on", 1, nats, {1: {KNOWN: 0.1}, 2: {KNOWN: 0.2}})
    write("chain", 1, {1: [1.5, 2.51, 3.5], 2: [1.9, 3.3, 3.9]})
    monkeypatch.setitem(tables.STUDIES, "characters", TEXT)
    shown = tables.render("characters", tmp_path)
    assert "| chain | 7 | 60 | 1.250 | 2.5033 | 3.0333 |" in shown
    assert "| chain | **-0.4967 (0.0033)** | +0.0333 (0.1333) |" in shown
    # half a nat of the whole nat that one step costs, to first order without error
    assert "| chain | +0.50 (0.00) | -0.03 (0.13) |" in shown
    assert "| M1-on | 0.100 (-) | 0.200 (-) |" in shown and "3 held-out sequences" in shown
    draw(tmp_path / "f.png", TEXT, tables.read_study("characters", tmp_path), "characters")
    assert (tmp_path / "f.png").stat().st_size > 5000


def test_agreetext_shows_seeds_the_optimum_and_perfect_entropy(write: Write, tmp_path: Path):
    agreetext(write)
    shown = tables.render("agreetext", tmp_path)
    assert "| tree | 0.950 (4.05) |" in shown and "4.09 nats or more" in shown
    assert f"No model can be below {BEST:.4f}" in shown
    assert "| tree | +0.99 (0.00) |" in shown  # 0.495 of the 0.5 that M = 1 is above the optimum


def test_a_method_without_a_bound_stands_among_the_samples_alone(write: Write, tmp_path: Path):
    agreetext(write)
    for J in AGREETEXT.steps:
        labels = {ARM: SAMPLED, SEED: 1, STEPS: J}
        figures = {VALID: Estimate(0.5 + J / 100, 0.01, 50), tables.ENTROPY: Estimate(3.9)}
        write_record(
            Record(kind=SAMPLES, name=f"d.J{J}", settings={"sampling": {"steps": J}, "seed": 1},
                   metrics=figures, labels=labels, **COMMON),
            tmp_path,
        )  # fmt: skip
    shown = tables.render("agreetext", tmp_path)
    (line,) = [line for line in shown.splitlines() if line.startswith(f"| {SAMPLED} ")]
    assert line.startswith(f"| {SAMPLED} | 0.510 (3.90) | 0.520 (3.90) |")
    assert SAMPLED not in {run.arm for run in tables.read_study("agreetext", tmp_path)}


def test_samples_by_several_seeds_are_averaged(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    nats = {1: [2.0, 3.0], 2: [2.0, 2.5], ENDLESS: [1.0, 2.0]}
    for seed, known in ((1, 0.1), (2, 0.2), (3, 0.6)):
        figures = {1: {KNOWN: known, "pooled_entropy": 3 + known}, 2: {KNOWN: 0.5}}
        write("M1-on", 1, nats, figures, sampling_seed=seed)
    write("chain", 1, nats, {1: {KNOWN: 0.4}, 2: {KNOWN: 0.4}})
    monkeypatch.setitem(tables.STUDIES, "characters", TEXT)
    shown = tables.render("characters", tmp_path)
    assert "| M1-on | 0.300 (3.30) | 0.500 (-) |" in shown
    assert "50 samples of one chain each, by each of 3 seeds of sampling" in shown
    assert "standard deviations between them at most 0.265" in shown  # of .1, .2 and .6
    assert "Cells of one seed: 2." in shown


def test_the_dearest_component_is_taken_away(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    nats = {1: [2.0, 2.0], 2: [1.8, 1.8]}
    write("M1-on", 1, nats | {4: [1.5, 1.5], ENDLESS: [1.0, 1.0]})
    write("chain", 1, {J: [1.4, 1.4] for J in (1, 2, 4)})
    nll = {f"nll@{J}.without[{c}]": Estimate(1.5 + 0.2 * c) for J in DROPPED for c in (0, 1)}
    labels = {ARM: "chain", SEED: 1, "row": DROP_ONE}
    settings = {"estimator": DROP_ONE}
    write_record(
        Record(kind=LIKELIHOOD, name="d", settings=settings, metrics=nll, labels=labels, **COMMON),
        tmp_path,
    )
    monkeypatch.setitem(tables.STUDIES, "characters", TEXT)
    (one,) = [run for run in tables.read_study("characters", tmp_path) if run.arm == "chain"]
    assert one.likelihood.value("nll@1") == pytest.approx(1.4)
    shown = tables.render("characters", tmp_path)
    assert "| chain | -0.3000 | -0.1000 | +0.2000 |" in shown


def test_an_exact_likelihood_is_a_note_and_a_line(write: Write, tmp_path: Path):
    agreetext(write)
    record = Record(
        kind=LIKELIHOOD,
        name="x.ar",
        settings={},
        metrics={EXACT: Estimate(1.3453), TRAINED: Estimate(20.0)},
        labels={ARM: AUTOREGRESSIVE, SEED: 1, "trained_steps": 600},
        **COMMON,
    )
    write_record(record, tmp_path)
    runs, exact = tables.read_study("agreetext", tmp_path), tables.read_exact(tmp_path)
    assert [run.arm for run in runs] == ["M1", "M8", "tree"] and len(exact) == 1
    shown = tables.render("agreetext", tmp_path)
    assert "The autoregressive model has exactly 1.3453 after 600 steps, 20 CPU s." in shown
    draw(tmp_path / "with.png", AGREETEXT, runs, "agreetext", exact)
    draw(tmp_path / "without.png", AGREETEXT, runs, "agreetext")
    assert (tmp_path / "with.png").read_bytes() != (tmp_path / "without.png").read_bytes()


def test_no_records_are_told(tmp_path: Path):
    with pytest.raises(UserError, match="holds no record: make some by scripts/latents.py"):
        tables.read_study("agreetext", tmp_path)


def test_a_good_tree_keeps_every_target(write: Write, tmp_path: Path):
    agreetext(write)
    runs = tables.read_study("agreetext", tmp_path)
    assert len(list(verdicts(runs))) == 5
    assert "MISSED" not in render_targets(runs)


@pytest.mark.parametrize(
    ("worse", "what"),
    [
        ({VALID: 0.85}, "valid at J=1"),
        ({tables.ENTROPY: 3.5}, "entropy within"),
        ({"excess": 0.011}, "bound at J=1 within"),
        ({"excess": 0.35}, "bound at no J above that of M8"),
    ],
)
def test_a_worse_one_does_not(write: Write, tmp_path: Path, worse: dict[str, float], what: str):
    agreetext(write, **worse)
    lines = render_targets(tables.read_study("agreetext", tmp_path)).splitlines()
    assert any(line.strip().startswith("MISSED") and what in line for line in lines)


def test_a_part_of_the_study_has_its_tables_and_exact_lines_by_seed(write: Write, tmp_path: Path):
    figures = {VALID: 0.05, tables.ENTROPY: 3.0}
    write("M1", 1, {J: [2.0, 2.0] for J in AGREETEXT.steps}, {J: figures for J in AGREETEXT.steps})
    assert "| M1 | 0.050 (3.00) |" in tables.render("agreetext", tmp_path)  # no tree beside it
    for seed in (2, 1):
        labels = {ARM: AUTOREGRESSIVE, SEED: seed, "trained_steps": 7}
        metrics = {EXACT: Estimate(1.0 + seed), TRAINED: Estimate(5.0)}
        name = "x.ar.likelihood" if seed == 1 else f"x.ar-seed{seed}.likelihood"
        write_record(
            Record(kind=LIKELIHOOD, name=name, settings={"of": seed}, metrics=metrics,
                   labels=labels, **COMMON),
            tmp_path,
        )  # fmt: skip
    assert [one.labels[SEED] for one in tables.read_exact(tmp_path)] == [1, 2]


def test_the_picture_has_a_curve_for_every_run(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """More runs than colors, the last ones of the study among them."""
    import matplotlib.pyplot as plt

    arms = [arm for arm in CHARACTERS.rows if arm != AUTOREGRESSIVE]
    for arm in arms:
        write(arm, 1, {J: [2.0, 2.1] for J in (1, 2, ENDLESS)})
    monkeypatch.setitem(tables.STUDIES, "characters", TEXT)
    monkeypatch.setattr(plt, "close", lambda figure: None)
    draw(tmp_path / "f.png", TEXT, tables.read_study("characters", tmp_path), "characters")
    (axes,) = plt.gcf().axes
    told = [text.get_text() for text in axes.get_legend().get_texts()]
    assert told == [*arms, f"M1-on, J={ENDLESS}"] and len(arms) > 7
    monkeypatch.undo()
    plt.close("all")

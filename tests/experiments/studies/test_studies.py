"""Records, measurements, figures and the command, on runs of a few steps."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from experiments.studies import agreetext, catalog, measures
from experiments.studies.agreetext import agreetext_recipe, measure_agreetext
from experiments.studies.catalog import STUDIES, Budget, run_study
from experiments.studies.figures import draw
from experiments.studies.measures import (
    measure_likelihood,
    measure_modes,
    measure_probe,
    measure_support,
)
from experiments.studies.recipe import Recipe, make_corpus
from experiments.studies.records import study_record
from experiments.studies.runs import recipe_of
from experiments.studies.sampling import frozen_samples
from experiments.studies.targets import report
from experiments.studies.training import Trainer
from lkf_plugin.errors import UserError
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.store import read_records

TINY = Recipe("hidden", 3, 30, 0, width=16, warmup=2, batch=8)


@pytest.fixture(scope="module")
def small():
    """A network of three components after a few steps, and its parts."""
    trainer = Trainer(TINY)
    for _ in range(5):
        trainer.train_step()
    return trainer.finished(), make_corpus("hidden"), TINY


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(measures, "ROWS", 200)
    monkeypatch.setattr(measures, "CHUNK", 100)
    monkeypatch.setattr(measures, "SAMPLES", 24)
    monkeypatch.setattr(measures, "STEPS_J", (1, 2))


def test_excess_is_the_loss_less_the_optimum(small, quick):
    metrics = measure_likelihood(*small)
    assert metrics["excess"].value > 0  # an untrained network
    assert metrics["nll"].value - metrics["excess"].value == pytest.approx(
        metrics["optimum"], abs=1.5
    )
    assert metrics["excess"].se < metrics["nll"].se * 2
    assert metrics["information"].value <= metrics["information_ceiling"]


def test_frozen_samples_are_whole_and_reproducible(small):
    for form in ("analytic", "learned"):
        x, k = frozen_samples(small[0], 8, 20, 3, seed=4, form=form)
        assert x.shape == (20, 8) and x.max().item() < 16
        again, same = frozen_samples(small[0], 8, 20, 3, seed=4, form=form)
        assert torch.equal(x, again) and torch.equal(k, same)


def test_frozen_component_is_obeyed(small):
    k = torch.tensor([2] * 6)
    assert torch.equal(frozen_samples(small[0], 8, 6, 1, component_G=k)[1], k)


def test_a_cell_is_measured_once(tmp_path, monkeypatch):
    calls = []

    def measure(backbone, corpus, recipe):
        calls.append(recipe)
        return {"one": 1.0, "pair": [1, 2], "estimate": Estimate(2.0, 0.5)}

    recipe = replace(TINY, steps=4)
    cells = [catalog.Cell(recipe.name, recipe, measure), catalog.Cell("laws", None, measure)]
    monkeypatch.setitem(STUDIES, "hidden", lambda budget: iter(cells))
    records = run_study("hidden", Budget(), tmp_path, quiet=True)
    assert run_study("hidden", Budget(), tmp_path, quiet=True) == records
    assert calls == [recipe, None]
    assert read_records(tmp_path / "records" / "hidden") == records
    run, laws = records
    assert run.metrics == {
        "one": Estimate(1.0),
        "splits": Estimate(0),
        "estimate": Estimate(2.0, 0.5),
    }
    assert run.series == laws.series == {"pair": [1, 2]}
    assert recipe_of(run) == recipe


def cells_of(study, budget):
    return list(STUDIES[study](budget))


@pytest.mark.parametrize("study", list(STUDIES))
def test_names_of_cells_differ(study):
    cells = cells_of(study, Budget(seeds=2))
    assert len({cell.name for cell in cells}) == len(cells)


def test_paper_budget_fixes_the_steps():
    cells = cells_of("hidden", Budget(3, catalog.PAPER_STEPS))
    assert {cell.recipe.steps for cell in cells} == {30_000}
    assert {cell.recipe.components for cell in cells} == {1, 2, 4, 8, 16}


def test_short_plan_has_fewer_cells_and_cuts_long_runs_only():
    short = Budget(seeds=1, short=True)
    assert [cell.recipe.components for cell in cells_of("parity", short)] == [1, 4, 16]
    cut = {M: short.steps_for("agreetext", M) for M in (1, 4, 8)}
    assert cut == {1: 900, 4: 1000, 8: 1125}
    assert Budget(steps=5, short=True).steps_for("agreetext", 8) == 5


def test_unknown_study(tmp_path):
    with pytest.raises(UserError, match="agreetext"):
        run_study("nonsense", Budget(), tmp_path)


MEASURES = {
    "hidden": measure_likelihood,
    "probe": measure_probe,
    "modes": measure_modes,
    "support": measure_support,
}


@pytest.mark.parametrize("study", list(MEASURES))
def test_study_runs_draws_and_reports(tmp_path, quick, monkeypatch, study):
    def one_cell(budget):
        recipe = replace(TINY, steps=4)
        yield catalog.Cell(recipe.name, recipe, MEASURES[study])

    monkeypatch.setattr(measures, "GRID", ((0.0, 0.5), (0.75, 1.0)))
    monkeypatch.setitem(STUDIES, study, one_cell)
    records = run_study(study, Budget(), tmp_path, quiet=True)
    assert records == read_records(tmp_path / "records" / study)
    figure = tmp_path / "figures" / "one.png"
    assert draw(study, records, figure)
    assert figure.stat().st_size > 5000
    assert isinstance(report(study, records), list)


def test_targets_count_what_is_met():
    def record(seed, excess):
        value = Estimate(excess, 0.001)
        measured = {"excess": value, "information": value, "total_correlation": value}
        return study_record("parity", "one", Recipe("parity", 4, 99, seed), measured, "0", {}, {})

    lines = report("parity", [record(0, 0.01), record(1, 0.025)])
    assert lines[0].startswith("  met 2/2  excess")
    assert lines[1].startswith("  met 1/2  I at (0, 1)")


def test_agreetext_measures(monkeypatch):
    monkeypatch.setattr(agreetext, "BATCHES", 2)
    monkeypatch.setattr(agreetext, "ROWS", 8)
    monkeypatch.setattr(agreetext, "SAMPLES", 12)
    monkeypatch.setattr(agreetext, "STEPS_J", (1, 2))
    recipe = replace(agreetext_recipe(2, 8, 0), width=16)
    trainer = Trainer(recipe)
    metrics = measure_agreetext(trainer.finished(), recipe)
    assert metrics["marginal_less_entropy"].value > 1.0  # untrained: near log 87
    assert metrics["mixture_less_entropy_exact"] < 0
    assert len(metrics["valid"]) == 2

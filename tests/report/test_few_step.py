"""Likelihoods of few steps in the report of runs: which figures, of which runs, as what."""

from __future__ import annotations

from typing import Any

import pytest

from lkf_plugin.report.few_step import few_step_curves, few_step_rows, few_step_table
from lkf_plugin.report.latent_sections import few_step_section
from lkf_plugin.report.runs import Run, SideBySide
from lkf_plugin.report.tables import markdown


def evaluation(components: int, **figures: float) -> dict[str, Any]:
    named = {name.replace("_at_", "@"): value for name, value in figures.items()}
    likelihood = {name: {"value": v, "se": 0.01, "n": 9} for name, v in named.items()}
    likelihood["nelbo"] = {"value": 1.0, "se": 0.1, "n": 9}
    return {"num_components": components, "likelihood": likelihood, "metrics": {"val/nll": 1.0}}


@pytest.fixture
def side() -> SideBySide:
    one = evaluation(1, nll_at_1=2.0, nll_at_16=1.5, nll_frozen_at_1=2.0, nll_frozen_at_16=1.5)
    two = evaluation(8, nll_at_1=1.75, nll_frozen_at_1=1.75, nll_replay_at_1=1.7)
    runs = [Run(name, {}, [], 5, [found], []) for name, found in (("M1", one), ("M8", two))]
    return SideBySide([*runs, Run("none", {}, [], 5, [], [])], [])


def test_one_component_is_not_shown_twice(side: SideBySide):
    found = few_step_curves(side)
    assert list(found) == [("M1", "redrawn"), ("M8", "redrawn"), ("M8", "frozen"), ("M8", "replay")]
    assert list(found["M1", "redrawn"]) == [1, 16]
    assert found["M8", "replay"][1].value == 1.7


def test_a_column_for_each_number_of_steps(side: SideBySide):
    columns, rows = few_step_table(side)
    assert columns == ["run", "latents", "nll@1", "nll@16"]
    assert rows[0] == ["M1", "redrawn", "2.0000 ± 0.0100", "1.5000 ± 0.0100"]
    assert rows[1][2:] == ["1.7500 ± 0.0100", ""]
    assert ["M1", "redrawn", 16, 1.5, 0.01, 9] in few_step_rows(side)


def test_pages_show_it_where_there_is_something(side: SideBySide):
    assert "## Likelihood of few steps" in markdown(side) and "nll@16" in few_step_section(side)
    nothing = SideBySide([Run("a", {}, [], 5, [evaluation(1)], [])], [])
    assert "few steps" not in markdown(nothing) and few_step_section(nothing) == ""

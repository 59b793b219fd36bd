"""The study itself: a short one by the real commands, and the targets by a whole run (slow)."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.latents.arms import AGREETEXT, AUTOREGRESSIVE, ENDLESS, FIRST, SAMPLED, STUDIES
from experiments.latents.measure import EXACT
from experiments.latents.study import RECORDS, run_study
from experiments.latents.tables import read_exact, read_study, render
from experiments.latents.targets import verdicts
from experiments.runner import compose_settings
from lkf_plugin.config.validate import validate


@pytest.mark.parametrize(
    ("study", "arm"), [(name, arm) for name, study in STUDIES.items() for arm in study.rows]
)
def test_every_run_is_a_command_that_is_accepted(study: str, arm: str):
    row = STUDIES[study].rows[arm]
    config = compose_settings([*row.overrides, "run_dir=x"])
    validate(config, "builtin")
    assert config.trainer.max_steps % config.trainer.val_check_interval == 0
    on_text = not study.startswith("agreetext")
    assert row.start == (FIRST if on_text and arm not in (FIRST, AUTOREGRESSIVE) else None)
    assert (ENDLESS in STUDIES[study].steps_of(arm)) == (on_text and arm == "M1-on")


@pytest.mark.slow
def test_a_short_study_is_measured_once(tmp_path: Path):
    short = {"arms": ["tree"], "seeds": [1], "steps": 4, "samples": 8}
    first = run_study("agreetext", tmp_path, **short)  # type: ignore[arg-type]
    assert len(first) == 2 + len(AGREETEXT.steps)  # bounds, drop-one, samples
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / RECORDS).iterdir()}
    again = run_study("agreetext", tmp_path, **short)  # type: ignore[arg-type]
    assert [one.digest for one in again] == [one.digest for one in first]
    assert {path: path.stat().st_mtime_ns for path in written} == written


@pytest.mark.slow
def test_the_autoregressive_line_is_measured_beside(tmp_path: Path):
    short = {"seeds": [1], "steps": 4, "samples": 0}
    (exact,) = run_study("agreetext", tmp_path, ["ar"], **short)  # type: ignore[arg-type]
    run_study("agreetext", tmp_path, ["M1"], **short)  # type: ignore[arg-type]
    assert exact.metrics[EXACT].value > AGREETEXT.optimum and read_exact(tmp_path) == [exact]
    assert "autoregressive model has exactly" in render("agreetext", tmp_path / RECORDS)


@pytest.mark.slow
def test_what_has_no_bound_is_sampled_beside(tmp_path: Path):
    short = {"seeds": [1], "steps": 4, "samples": 8}
    drawn = run_study("agreetext", tmp_path, [SAMPLED], **short)  # type: ignore[arg-type]
    assert [one.labels["J"] for one in drawn] == list(AGREETEXT.steps)
    assert all(one.labels["row"] == "own" for one in drawn)


@pytest.mark.slow
def test_the_tree_keeps_its_targets(tmp_path: Path):
    """One seed by the study's own command; the kept records hold three."""
    run_study("agreetext", tmp_path, ["tree"], [1])
    found = list(verdicts(read_study("agreetext", tmp_path / RECORDS)))
    assert found and [(what, value) for what, value, kept in found if not kept] == []

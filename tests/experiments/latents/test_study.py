"""The study itself: a short one by the real commands, and the targets by a whole run (slow)."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.latents.arms import AGREETEXT, CHARACTERS, FIRST
from experiments.latents.study import RECORDS, run_study
from experiments.latents.tables import read_study
from experiments.latents.targets import verdicts
from experiments.runner import compose_settings
from lkf_plugin.config.validate import validate


@pytest.mark.parametrize("name", [*AGREETEXT.rows, *CHARACTERS.rows])
def test_every_run_is_a_command_that_is_accepted(name: str):
    for study in (AGREETEXT, CHARACTERS):
        if name in study.rows:
            row = study.rows[name]
            config = compose_settings([*row.overrides, "run_dir=x"])
            validate(config, "builtin")
            assert config.trainer.val_check_interval <= config.trainer.max_steps
            assert row.start == (None if study is AGREETEXT or name == FIRST else FIRST)


@pytest.mark.slow
def test_a_short_study_is_measured_once(tmp_path: Path):
    short = {"arms": ["tree"], "seeds": [1], "steps": 4, "samples": 8}
    first = run_study("agreetext", tmp_path, **short)  # type: ignore[arg-type]
    assert len(first) == 1 + len(AGREETEXT.steps)
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / RECORDS).iterdir()}
    again = run_study("agreetext", tmp_path, **short)  # type: ignore[arg-type]
    assert [one.digest for one in again] == [one.digest for one in first]
    assert {path: path.stat().st_mtime_ns for path in written} == written


@pytest.mark.slow
def test_the_tree_keeps_its_targets(tmp_path: Path):
    """One seed by the study's own command; the kept records hold three."""
    run_study("agreetext", tmp_path, ["tree"], [1])
    found = list(verdicts(read_study("agreetext", tmp_path / RECORDS)))
    assert found and [(what, value) for what, value, kept in found if not kept] == []

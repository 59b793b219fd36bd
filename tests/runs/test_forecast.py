"""What a run on a CPU says of its length."""

from __future__ import annotations

from lkf_plugin.runs.forecast import duration_sentence


def test_a_run_of_months_is_said() -> None:
    sentence = duration_sentence(1_000_000, 12.0)
    assert sentence is not None
    assert "about 139 days" in sentence and "1000000 steps of about 12.0 s" in sentence


def test_a_run_of_hours_is_not() -> None:
    assert duration_sentence(1500, 2.0) is None

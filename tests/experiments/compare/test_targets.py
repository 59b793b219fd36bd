"""What a comparison must show: values from records, the worst start, and what a miss looks like."""

from __future__ import annotations

import pytest

from experiments.compare.agreetext import ROWS
from experiments.compare.entries import Entry, collect
from experiments.compare.methods import BEST, OWN
from experiments.compare.page import STARTS
from experiments.compare.targets import AR_STEPS, TARGETS, asked, render_targets
from lkf_plugin.corpora import agreetext
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.store import read_records
from tests.experiments.compare.test_page import RECORDS
from tests.records.make import record

OPTIMUM = agreetext.nelbo_optimum(4)


def entry(excess: float, valid: dict[tuple[str, int], float]) -> Entry:
    bound = record(kind="likelihood", metrics={"nelbo": Estimate(OPTIMUM + excess, 0.008, 9)})
    cells = {
        place: record(
            metrics={
                "valid": Estimate(value, 0.01, 9),
                "configuration_entropy": Estimate(3.9, None, 9),
            }
        )
        for place, value in valid.items()
    }
    return Entry(bound, cells)


def duo(at_four: float, excess: float = 0.006) -> dict[str, Entry]:
    return {"duo": entry(excess, {(OWN, 2): 0.5, (OWN, 4): at_four, (BEST, 2): 0.9})}


def test_only_what_has_its_rows_is_asked() -> None:
    texts = [target.text for target, _ in asked(duo(0.9))]
    assert len(texts) == 5 and all(text.startswith("duo") for text in texts)
    values = {target.text: value for target, value in asked(duo(0.9))}
    assert values["duo: distance of its nats from H / L, less 2 se"] == pytest.approx(0.006 - 0.016)


def test_a_gain_is_over_mdlm_and_a_bound_over_the_closed_form() -> None:
    low = {(OWN, J): 0.05 for J in (2, 4, 8, 32)} | {(BEST, J): 0.2 for J in (2, 4)}
    rows = {"mdlm": entry(0.0, low), "lkf-M8": entry(0.0, {place: 0.7 for place in low})}
    values = {target.text: value for target, value in asked(rows)}
    assert values["lkf-M8 less mdlm: valid, J=2"] == pytest.approx(0.65)
    assert values["lkf-M8, best of 8 less mdlm, best of 8: valid, J=2"] == pytest.approx(0.5)
    exact = agreetext.few_step_validity(4, 4, 1, False)
    assert values["mdlm: valid less the closed form of M = 1, J=4"] == pytest.approx(0.05 - exact)


def test_the_worst_start_stands_first_and_a_miss_is_said() -> None:
    table = render_targets({"seed 1": duo(0.9), "seed 2": duo(0.7), "seed 3": duo(0.95)})
    exact = agreetext.few_step_validity(4, 4, 8, True)
    values = " | ".join(f"{share - exact:.3f}" for share in (0.9, 0.7, 0.95))
    missed = f"at least 0 | {0.7 - exact:.3f} **missed** | {values} |"
    assert f"| duo: valid less the closed form of M = 8, J=4 | {missed}" in table
    assert "missed" not in render_targets({"seed 1": duo(0.9)})
    ragged = render_targets({"seed 1": duo(0.9), "seed 2": {}})
    assert all(line.count("|") == 6 for line in ragged.splitlines())
    far = render_targets({"seed 1": duo(0.9, excess=-0.05)})
    assert "| at most 0.02 | 0.034 **missed** | 0.034 |" in far


def test_the_kept_comparisons_meet_every_target() -> None:
    """Three seeds and a perturbed start."""
    starts = [RECORDS / "agreetext", *sorted((RECORDS / STARTS).iterdir())]
    assert len(starts) == 4
    for folder in starts:
        entries = collect(read_records(folder), ROWS)
        missed = [(t.text, value) for t, value in asked(entries) if not t.met(value)]
        assert missed == [], folder.name
        assert {"ar", "mdlm", "sedd", "duo", "lkf-M8"} <= set(entries)


def test_every_row_has_a_likelihood_target() -> None:
    rows = {row for target in TARGETS if "nats" in target.text for row in target.rows}
    assert rows >= {"ar", "mdlm", "sedd", "duo", "lkf-M8"} and AR_STEPS == 32

"""What distillation costs, and the block that tells what it gained."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.paper.scales import SCALES, Corpus
from experiments.paper.students import PASSES, cost, students

RECORDS = Path(__file__).resolve().parents[3] / "docs" / "records"


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return next(one for one in SCALES["tiny"] if one.name == "agreetext")


def test_costs_count_every_pass_of_both_networks(corpus: Corpus) -> None:
    """By hand: 60 steps a round, batches of 32; Di4C 30 steps a round of 8 times 8 latents."""
    assert cost(corpus, "mdlm") == 700
    assert cost(corpus, "sdtt-r1") == pytest.approx(60 * (PASSES + 2) / PASSES)
    assert cost(corpus, "sdtt-r3") == pytest.approx(3 * cost(corpus, "sdtt-r1"))
    assert cost(corpus, "dcd-r2") == pytest.approx(120 * (PASSES + 1) / PASSES)
    first = 30 * 8 * (8 * PASSES + 8 + 1) / (PASSES * 32)  # the first teacher has no latent
    assert cost(corpus, "di4c-r1") == pytest.approx(first)
    second = 30 * 8 * (8 * PASSES + 8 + 8) / (PASSES * 32)
    assert cost(corpus, "di4c-r2") == pytest.approx(first + second)
    pairs = 1000 * 33 / (PASSES * 32)
    assert cost(corpus, "redi-r2") == pytest.approx(2 * (60 + pairs))


def test_the_block_has_a_gain_for_every_student() -> None:
    lines = students(RECORDS)["students"].splitlines()
    rows = {line.split("|")[1].strip(): line for line in lines[2:]}
    assert {"MDLM", "DUO", "SDTT, round 1", "DCD, round 1", "ReDi, round 1"} <= rows.keys()
    for label, line in rows.items():
        gain = line.split("|")[-2].strip()
        assert (gain == "") == (label in ("MDLM", "DUO", "LKF M=8, one chain")), line

"""A decoding policy costs one file and its YAML."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.extension.conftest import LIMIT

FILES = ["my_policies.py", "conf/decode/ranked.yaml"]
TRAINING = ("model=lkf-tiny", "loss=mixture")


def test_the_example_samples(example, main, tmp_path: Path, capfd) -> None:
    ranked = example("A decoding policy")
    assert ranked.files == FILES and ranked.lines <= LIMIT
    assert main(*TRAINING) == 0
    drawn = {}
    for rank in ("0", "1"):
        arguments = [a.replace("decode.rank=0", f"decode.rank={rank}") for a in ranked.arguments]
        assert main(*arguments, "loader.eval_batch_size=3") == 0, capfd.readouterr().err
        [report] = list((tmp_path / "run").rglob("sample_eval*.json"))
        facts = json.loads(report.read_text())
        assert facts["policy"] == "my_policies.ranked" and facts["steps_calls"] == 4.0
        samples = [p for p in (tmp_path / "run").rglob("*samples*.jsonl")]
        drawn[rank] = samples[0].read_text()
    assert drawn["0"] != drawn["1"]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ("decode.rank=3", "error: decode.rank=3 must be below model.num_components=3."),
        ("decode.rank=-1", "decode.rank=-1"),
        ("+decode.rnak=1", "decode.rnak"),
    ],
)
def test_its_knob_is_checked(example, main, capfd, wrong: str, sentence: str) -> None:
    ranked = example("A decoding policy")
    assert main(*TRAINING) == 0
    capfd.readouterr()
    arguments = [a for a in ranked.arguments if not a.startswith("decode.rank")]
    assert main(*arguments, wrong) == 2
    err = capfd.readouterr().err
    assert sentence in err and "Traceback" not in err


def test_it_draws_the_samples_of_a_validation(example, main, tmp_path: Path) -> None:
    example("A decoding policy")
    arguments = ("--config-dir", "conf", *TRAINING, "decode=ranked", "eval.generate_samples=true")
    assert main(*arguments) == 0
    assert list((tmp_path / "run" / "samples").glob("step-*.txt"))

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lkf_plugin.errors import UserError
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.record import (
    ResultRecord,
    read_record,
    read_records,
    write_record,
)


def record(**changes: Any) -> ResultRecord:
    values: dict[str, Any] = {
        "cell": "bestof8.J=4",
        "metrics": {
            "gen_ppl[gpt2-large]": Estimate(105.2, 1.75, 512),
            "entropy": Estimate(0.1 + 0.2, None, 1),
        },
        "host": "builtin",
        "code": "0.1.0",
        "libraries": {"torch": "2.13.0", "numpy": "2.4.6"},
        "corpus": "sotu",
        "corpus_digest": "ab12",
        "wrap": True,
        "tokenizer": "wordpiece-4096",
        "tokenizer_digest": "cd34",
        "checkpoint_digest": "ef56",
        "ema": True,
        "num_components": 8,
        "latent_blocks": 2,
        "policy": "best_of_m",
        "steps": 4,
        "calls": 8,
        "samples": 512,
        "length": 128,
        "precision": "float64",
        "judge": "gpt2-large",
        "seed": 1,
        "settings": {"selector": "nelbo", "score_draws": 4, "min_prior": 0.0125},
        "machine": {"cpu": "some cpu", "threads": 2, "gpu": None},
    }
    return ResultRecord(**{**values, **changes})


def test_round_trip_and_identical_bytes(tmp_path: Path) -> None:
    first = write_record(record(), tmp_path / "a")
    # Keys in another order, written over an older file, in another folder.
    write_record(record(seed=2), tmp_path / "b")
    other = record(libraries={"numpy": "2.4.6", "torch": "2.13.0"})
    second = write_record(other, tmp_path / "b")
    assert first.name == "bestof8.J=4.json"
    assert first.read_bytes() == second.read_bytes()
    assert read_record(first) == record()
    assert [one.name for one in (tmp_path / "b").iterdir()] == [second.name]


def test_every_field_is_in_the_file(tmp_path: Path) -> None:
    content = json.loads(write_record(record(), tmp_path).read_text())
    assert content["schema_version"] == 1
    assert content["metrics"]["gen_ppl[gpt2-large]"] == {"value": 105.2, "se": 1.75, "n": 512}
    fields = set(ResultRecord.__dataclass_fields__)
    assert set(content) == fields | {"schema_version"}


def test_reads_a_tree_in_order(tmp_path: Path) -> None:
    for folder, cell in (("x", "b"), ("x", "a"), ("w", "z")):
        write_record(record(cell=cell), tmp_path / folder)
    assert [one.cell for one in read_records(tmp_path)] == ["z", "a", "b"]


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"cell": "../x"}, "cell"),
        ({"host": "cloud"}, "host"),
        ({"ema": 1}, "ema"),
        ({"seed": True}, "seed"),
        ({"num_components": 0}, "num_components"),
        ({"steps": 4.0}, "steps"),
        ({"calls": float("inf")}, "calls"),
        ({"judge": 3}, "judge"),
        ({"metrics": {}}, "metrics"),
        ({"metrics": {"a": 3.0}}, "metrics.a"),
        ({"metrics": {"a": Estimate(float("nan"), None, 1)}}, "metrics.a.value"),
        ({"metrics": {"a": Estimate(1.0, -0.5, 1)}}, "metrics.a.se"),
        ({"metrics": {"a": Estimate(1.0, 0.5, 0)}}, "metrics.a.n"),
        ({"settings": {"a": [1]}}, "settings.a"),
        ({"libraries": {"torch": 2}}, "libraries.torch"),
    ],
)
def test_refuses_wrong_values(changes: dict[str, Any], names: str) -> None:
    with pytest.raises(UserError, match=f"^{names.replace('.', '[.]')} "):
        record(**changes)


def edit(path: Path, **changes: Any) -> Path:
    content = json.loads(path.read_text())
    content.update(changes)
    path.write_text(json.dumps({key: one for key, one in content.items() if one != "drop"}))
    return path


def test_reader_names_what_is_wrong(tmp_path: Path) -> None:
    path = write_record(record(), tmp_path)
    whole = path.read_text()
    for changes, message in (
        ({"seed": "drop"}, "lacks seed"),
        ({"surprise": 1}, "unknown surprise"),
        ({"schema_version": 99}, "schema version 99"),
        ({"wrap": "yes"}, "wrap must be bool"),
        ({"metrics": {"a": {"value": 1.0}}}, "no valid result record"),
    ):
        path.write_text(whole)
        with pytest.raises(UserError, match=message):
            read_record(edit(path, **changes))
    path.write_text("{")
    with pytest.raises(UserError, match="not JSON"):
        read_record(path)
    with pytest.raises(UserError, match="cannot read"):
        read_record(tmp_path / "absent.json")


def test_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_record(record(), tmp_path)
    before = path.read_bytes()

    def fail(*args: object) -> None:
        raise OSError("disk is full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="full"):
        write_record(replace(record(), seed=9), tmp_path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]

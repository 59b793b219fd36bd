"""Records are written whole, read back equal, and found by what they are."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lkf_plugin.records.record import FORMAT, Record
from lkf_plugin.records.store import find_record, read_record, read_records, write_record
from tests.records.make import SETTINGS, record


def test_round_trip_and_identical_bytes(tmp_path: Path) -> None:
    first = write_record(record(), tmp_path / "a")
    # keys in another order, written over an older file, in another folder
    write_record(record(code="older"), tmp_path / "b")
    shuffled = dict(reversed(SETTINGS.items()))
    other = record(libraries={"numpy": "2.4.6", "torch": "2.13.0"}, settings=shuffled)
    second = write_record(other, tmp_path / "b")
    assert first.name == f"bestof8.J=4-{record().digest[:12]}.json"
    assert first.read_bytes() == second.read_bytes()
    assert read_record(first) == record()
    assert [one.name for one in (tmp_path / "b").iterdir()] == [second.name]


def test_every_field_is_in_the_file(tmp_path: Path) -> None:
    content = json.loads(write_record(record(), tmp_path).read_text())
    assert content["format"] == FORMAT and content["digest"] == record().digest
    assert content["metrics"]["gen_ppl[gpt2-large]"] == {"value": 105.2, "se": 1.75, "n": 512}
    assert set(content) == set(Record.__dataclass_fields__) | {"format", "digest"}


def test_another_setting_is_another_file(tmp_path: Path) -> None:
    one = record()
    other = record(settings={**SETTINGS, "decode": {**SETTINGS["decode"], "min_prior": 0.0}})
    paths = {write_record(each, tmp_path) for each in (one, other)}
    assert len(paths) == 2
    assert find_record(tmp_path, one.digest) == one
    assert find_record(tmp_path, other.digest) == other
    assert find_record(tmp_path, "0" * 64) is None


def test_another_name_is_the_same_record(tmp_path: Path) -> None:
    write_record(record(), tmp_path)
    path = write_record(record(name="renamed"), tmp_path)
    assert list(tmp_path.iterdir()) == [path]


def test_reads_a_tree_in_order_without_hidden_files(tmp_path: Path) -> None:
    for folder, name in (("x", "b"), ("x", "a"), ("w", "z")):
        settings = {**SETTINGS, "seed": ord(name)}
        write_record(record(name=name, settings=settings), tmp_path / folder)
    (tmp_path / ".part-1").mkdir()
    (tmp_path / ".part-1" / "half.json").write_text("{")
    assert [one.name for one in read_records(tmp_path)] == ["z", "a", "b"]


def test_a_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_record(record(), tmp_path)
    before = path.read_bytes()

    def fail(*args: object) -> None:
        raise OSError("disk is full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="full"):
        write_record(replace(record(), code="new"), tmp_path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]

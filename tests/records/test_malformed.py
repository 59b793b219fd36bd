"""Files that are no records, or not what they say: one sentence each that names what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lkf_plugin.errors import UserError
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.records.record import Record
from lkf_plugin.records.store import read_record, read_records, write_record
from tests.records.make import record

Content = dict[str, Any]


def put(*path: str, to: Any) -> Callable[[Content], None]:
    """Sets what is at a path."""

    def change(content: Content) -> None:
        for key in path[:-1]:
            content = content[key]
        content[path[-1]] = to

    return change


def drop(*path: str) -> Callable[[Content], None]:
    """Removes what is at a path."""

    def change(content: Content) -> None:
        for key in path[:-1]:
            content = content[key]
        del content[path[-1]]

    return change


PPL = "gen_ppl[gpt2-large]"
CHANGES: dict[str, tuple[Callable[[Content], None], str]] = {
    "an older format": (put("format", to=1), "has format 1, this code reads 2"),
    "a later format": (put("format", to=3), "has format 3"),
    "the format as text": (put("format", to="2"), "has format 2, this code"),
    "the format as a truth value": (put("format", to=True), "has format True"),
    "no format": (drop("format"), "has format None"),
    "no metrics": (drop("metrics"), "lacks metrics"),
    "two keys missing": (lambda c: (c.pop("kind"), c.pop("code"))[0], "lacks code, kind"),
    "a key too many": (put("surprise", to=1), "unknown surprise"),
    "no digest": (drop("digest"), "lacks digest"),
    "another digest": (put("digest", to="0" * 64), "its digest is 000000000000"),
    "a digest that is a number": (put("digest", to=7), "its digest is 7"),
    "a changed setting": (put("settings", "seed", to=2), "was changed: its digest is"),
    "a changed subject": (put("subject", "checkpoint", to="0"), "was changed"),
    "a changed kind": (put("kind", to="likelihood"), "was changed"),
    "another name": (put("name", to="other"), "holds the record other-"),
    "a name that leaves the folder": (put("name", to="../x"), "name must be made of letters"),
    "an empty name": (put("name", to=""), "name must be made of"),
    "a name that is a number": (put("name", to=3), "name must be a text, not 3"),
    "a kind with a blank": (put("kind", to="a b"), "kind must be made of"),
    "a code that is null": (put("code", to=None), "code must be a text, not None"),
    "empty metrics": (lambda c: c.update(metrics={}, series={}), "at least one estimate"),
    "metrics as a list": (put("metrics", to=[1]), "metrics must be a mapping"),
    "a bare number as estimate": (put("metrics", PPL, to=3.0), "must be an estimate, not 3.0"),
    "an estimate without error": (drop("metrics", PPL, "se"), "must be an estimate"),
    "an estimate with more": (put("metrics", PPL, "unit", to="x"), "must be an estimate"),
    "a value that is text": (put("metrics", PPL, "value", to="9"), "value must be a finite"),
    "a value that is true": (put("metrics", PPL, "value", to=True), "value must be a finite"),
    "a value that is null": (put("metrics", PPL, "value", to=None), "value must be a finite"),
    "a negative error": (put("metrics", PPL, "se", to=-1.0), "se must not be negative"),
    "no samples": (put("metrics", PPL, "n", to=0), "n must be a positive integer"),
    "half a sample": (put("metrics", PPL, "n", to=1.5), "n must be a positive integer"),
    "settings as text": (put("settings", to="seed=1"), "settings must be a mapping"),
    "a subject of null": (put("subject", to=None), "subject must be a mapping"),
    "series as a number": (put("series", to=4), "series must be a mapping"),
    "a label that is a list": (put("labels", "row", to=[1]), "labels.row must be a plain value"),
    "a machine in a machine": (put("machine", "cpu", to={}), "machine.cpu must be a plain value"),
    "a version that is a number": (put("libraries", "torch", to=2), "libraries.torch must be"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_is_wrong_is_told_in_a_sentence(tmp_path: Path, what: str) -> None:
    change, message = CHANGES[what]
    path = write_record(record(), tmp_path)
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    refused(path, message)


TEXTS: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "is not JSON"),
    "a list": (b"[1]", "holds no JSON object"),
    "a number": (b"3", "holds no JSON object"),
    "two objects": (b"{}{}", "is not JSON"),
    "another encoding": ('{"name": "é"}'.encode("latin-1"), "is not UTF-8"),
    "NaN": (b'{"format": 2, "value": NaN}', "NaN is no number"),
    "infinity": (b'{"format": 2, "value": -Infinity}', "-Infinity is no number"),
    "a key twice": (b'{"format": 2, "name": "a", "name": "b"}', "name stands twice"),
    "a depth without end": (b"[" * 100_000, "is not JSON"),
    "an old result record": (b'{"schema_version": 1, "cell": "x"}', "has format 1"),
    "an old study": (b'{"schema": 1, "study": "x"}', "has format 1"),
}


@pytest.mark.parametrize("what", TEXTS)
def test_a_file_of_something_else(tmp_path: Path, what: str) -> None:
    text, message = TEXTS[what]
    path = tmp_path / "x.json"
    path.write_bytes(text)
    refused(path, message)


def test_a_number_beyond_floats(tmp_path: Path) -> None:
    path = write_record(record(), tmp_path)
    path.write_text(path.read_text().replace("105.2", "1e999"))
    refused(path, "value must be a finite number")


@pytest.mark.parametrize("length", [1, 40, 400])
def test_a_truncated_file(tmp_path: Path, length: int) -> None:
    path = write_record(record(), tmp_path)
    path.write_bytes(path.read_bytes()[:length])
    refused(path, "is not JSON")


def test_no_file_and_a_folder(tmp_path: Path) -> None:
    refused(tmp_path / "absent.json", "cannot read the record .*No such file")
    (tmp_path / "x.json").mkdir()
    refused(tmp_path / "x.json", "cannot read the record .*[Dd]irectory")


def test_a_copy_under_another_name(tmp_path: Path) -> None:
    path = write_record(record(), tmp_path)
    path.rename(tmp_path / "copy.json")
    refused(tmp_path / "copy.json", "give it that name, or remove it")


def test_one_bad_file_of_a_folder_is_named(tmp_path: Path) -> None:
    write_record(record(), tmp_path)
    (tmp_path / "zz.json").write_text("{")
    with pytest.raises(UserError, match="zz.json is no record"):
        read_records(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": 3}, "^kind must be a text"),
        ({"metrics": {"a": 3.0}}, "^metrics.a must be an estimate"),
        ({"metrics": {"a": Estimate(float("nan"))}}, "^metrics.a.value must be a finite number"),
        ({"metrics": {"a": Estimate(1.0, float("inf"))}}, "^metrics.a.se must be a finite number"),
        ({"settings": {"a": float("nan")}}, "^settings.a must be plain: nan is no plain value"),
        ({"settings": {"a": {"b": Path("x")}}}, "^settings.a must be plain: PosixPath"),
        ({"subject": {"a": {1, 2}}}, "^subject.a must be plain"),
        ({"series": {"a": [object()]}}, "^series.a must be plain"),
        ({"labels": {"a": float("inf")}}, "^labels.a must be a plain value"),
        ({"settings": {1: 2}}, "^settings must be a mapping of names"),
    ],
)
def test_no_wrong_record_is_made(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        record(**changes)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(field=st.sampled_from(sorted(Record.__dataclass_fields__)), value=JSON)
def test_any_other_value_is_read_back_or_refused(tmp_path: Path, field: str, value: Any) -> None:
    """Whatever stands in a field: a sentence, or exactly the record that was written."""
    path = write_record(record(), tmp_path)
    content = json.loads(path.read_text())
    content[field] = value
    path.write_text(json.dumps(content))
    try:
        found = read_record(path)
    except UserError:
        return
    assert json.loads(found.to_json()) == content


def refused(path: Path, message: str) -> None:
    """Reading ends in one sentence that names the file."""
    with pytest.raises(UserError, match=message) as caught:
        read_record(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)

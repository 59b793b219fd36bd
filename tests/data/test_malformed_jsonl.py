"""Rows of jsonl and of hub corpora that cannot be read: one sentence with file and line."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from omegaconf import DictConfig

from lkf_plugin.data import prepare
from lkf_plugin.data.jsonl import jsonl_rows
from lkf_plugin.data.reading import TextFormat
from tests.data.malformed import assert_refused

Make = Callable[..., DictConfig]
GOOD = b"".join(b'{"text": "a good row, number %d"}\n' % i for i in range(40))

# a name, the bytes of line 41, what the sentence holds after "rows.jsonl:"
LINES: list[tuple[str, bytes, str]] = [
    ("half", b'{"text": "a', "41 is not a line of JSON"),
    ("single-quotes", b"{'text': 'a'}", "41 is not a line of JSON"),
    ("two-objects", b'{"text": "a"} {"text": "b"}', "41 is not a line of JSON"),
    ("comma", b'{"text": "a"},', "41 is not a line of JSON"),
    ("plain-text", b"hello", "41 is not a line of JSON"),
    ("pretty-printed", b'{\n  "text": "a"\n}', "41 is not a line of JSON"),
    ("tab-inside", b'{"text": "a\tb"}', "41 is not a line of JSON"),
    ("bad-escape", b'{"text": "\\x41"}', "41 is not a line of JSON"),
    ("array", b'[{"text": "a"}]', "41 has no text in field text .*: it is a list"),
    ("number", b"12", "41 has no text in field text .*: it is a number"),
    ("string", b'"text"', "41 has no text in field text .*: it is a text"),
    ("null", b"null", "41 has no text in field text .*: it is null"),
    ("no-field", b'{"body": "a"}', "41 has no text in field text .*: it has body"),
    ("no-fields", b"{}", "41 has no text in field text .*: it has no fields"),
    ("null-field", b'{"text": null}', "41 has no text in field text .*: there is null"),
    ("int-field", b'{"text": 12}', "41 has no text in field text .*: there is a number"),
    ("bool-field", b'{"text": true}', "41 has no text .*: there is true or false"),
    ("list-field", b'{"text": ["a"]}', "41 has no text in field text .*: there is a list"),
    ("object-field", b'{"text": {"text": "a"}}', "41 has no text .*: there is an object"),
    ("huge-field", b'{"text": ' + b"9" * 9000 + b"}", "41 has no text .*: there is a number"),
    ("nan-field", b'{"text": NaN}', "41 has no text in field text .*: there is a number"),
    ("surrogate", b'{"text": "a\\ud83d"}', r"41 holds half a surrogate pair \(\\ud83d\)"),
    ("low-half", b'{"text": "\\udc00"}', r"41 holds half a surrogate pair \(\\udc00\)"),
    ("named-half", b'{"\\ud800": "a"}', "41 has no text in field text"),
    ("deep", b"[" * 200_000 + b"]" * 200_000, "41 is JSON nested too deeply"),
    ("deep-object", b'{"text":' * 100_000, "41 is JSON nested too deeply"),
    ("latin-1", b'{"text": "caf\xe9"}', "41 is not utf-8 text at byte"),
    ("nul", b'{"text": "a\0b"}', "41 holds a NUL byte"),
    ("zeros", bytes(512), "41 holds a NUL byte"),
    ("many-fields", b"{%s}" % b",".join(b'"k%d": 1' % i for i in range(5000)), "41 .*k7, ...$"),
]


@pytest.mark.parametrize(("line", "message"), [c[1:] for c in LINES], ids=[c[0] for c in LINES])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
def test_lines(make_config: Make, tmp_path: Path, line: bytes, message: str, packed: bool) -> None:
    content = GOOD + line + b"\n" + GOOD
    path = tmp_path / ("rows.jsonl.gz" if packed else "rows.jsonl")
    path.write_bytes(gzip.compress(content) if packed else content)
    message = f"{path.name}:{message}".replace(", ...$", r", \.\.\.\.$")
    assert_refused(lambda: prepare(make_config(path=str(path))), message, tmp_path)


# rows that can be read, and what they give
READABLE: list[tuple[str, bytes, list[str]]] = [
    ("bom", b'\xef\xbb\xbf{"text": "a"}\n', ["a"]),
    ("crlf", b'{"text": "a"}\r\n{"text": "b"}\r\n', ["a", "b"]),
    ("cr", b'{"text": "a"}\r{"text": "b"}', ["a", "b"]),
    ("blank-lines", b'\n \t\n{"text": "a"}\n\r\n\n{"text": "b"}\n\n', ["a", "b"]),
    ("huge-number-beside", b'{"n": ' + b"9" * 9000 + b', "text": "a"}', ["a"]),
    ("exponent-beside", b'{"n": 1e999999999, "text": "a"}', ["a"]),
    ("empty-text", b'{"text": ""}\n{"text": "b"}', ["", "b"]),
    ("escaped-nul", b'{"text": "a\\u0000b"}', ["a\0b"]),
    ("pair", b'{"text": "\\ud83d\\ude00"}', ["\U0001f600"]),
    ("twice", b'{"text": "a", "text": "b"}', ["b"]),
    ("separator-inside", '{"text": "a\u2028b"}'.encode(), ["a\u2028b"]),
]


@pytest.mark.parametrize(
    ("content", "rows"), [c[1:] for c in READABLE], ids=[c[0] for c in READABLE]
)
def test_readable_rows(tmp_path: Path, content: bytes, rows: list[str]) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    assert list(jsonl_rows(path, "text")) == rows


def test_replaced_halves(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"text": "a\\ud83d b\xff"}\n{"text": "c\0"}')
    rows = list(jsonl_rows(path, "text", TextFormat(errors="replace")))
    assert rows == ["a\ufffd b\ufffd", "c\ufffd"]


COLUMNS: list[tuple[str, pa.Array, str]] = [
    ("integers", pa.array([1, 2]), "has no text in column text .*: it holds int64"),
    ("floats", pa.array([1.5]), "it holds double"),
    ("bytes", pa.array([b"a"]), "it holds binary"),
    ("lists", pa.array([["a"]]), "it holds list"),
    ("nothing", pa.array([None, None]), "it holds null"),
    ("times", pa.array([0], pa.timestamp("s")), "it holds timestamp"),
]


def hub(make_config: Make, folder: Path, **data: object) -> DictConfig:
    return make_config(kind="hub", path=str(folder), tokenizer_name_or_path="train", **data)


@pytest.mark.parametrize(
    ("column", "message"), [c[1:] for c in COLUMNS], ids=[c[0] for c in COLUMNS]
)
def test_parquet_columns(make_config: Make, tmp_path: Path, column: pa.Array, message: str) -> None:
    folder = tmp_path / "hub"
    folder.mkdir()
    pq.write_table(pa.table({"text": column}), folder / "train.parquet")
    assert_refused(
        lambda: prepare(hub(make_config, folder)), f"train.parquet .*{message}", tmp_path
    )


HUB_FILES: list[tuple[str, bytes, str]] = [
    ("train.parquet", b"PAR1 and no more", "train.parquet cannot be read as parquet"),
    ("train.parquet", b"", "train.parquet cannot be read as parquet"),
    ("train.txt", b"one\ncaf\xe9\n", "train.txt:2 is not utf-8 text at byte 7"),
    ("train.raw", b"one\n\0\n", "train.raw:2 holds a NUL byte"),
    ("train.json", b'[\n{"text": "a"}\n]', "train.json:1 is not a line of JSON"),
    ("train.jsonl", b'{"text": 1}', "train.jsonl:1 has no text in field text"),
    ("other.txt", b"one\n", "has no file of the split train"),
]


@pytest.mark.parametrize(("name", "content", "message"), HUB_FILES)
def test_hub_files(
    make_config: Make, tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    folder = tmp_path / "hub"
    folder.mkdir()
    (folder / name).write_bytes(content)
    assert_refused(lambda: prepare(hub(make_config, folder)), message, tmp_path)


def test_parquet_texts_of_any_arrow_kind(make_config: Make, tmp_path: Path) -> None:
    from lkf_plugin.data.hub import parquet_rows

    for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        path = tmp_path / "rows.parquet"
        pq.write_table(pa.table({"text": pa.array(["a", None, "b"]).cast(kind)}), path)
        assert list(parquet_rows(path, "text")) == ["a", "", "b"]

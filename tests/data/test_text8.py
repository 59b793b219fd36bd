from __future__ import annotations

import urllib.error
import urllib.request
import zipfile
from pathlib import Path

import pytest

from lkf_plugin.data import text8
from lkf_plugin.data.text8 import Text8Corpus, Text8Tokenizer, encode_characters, read_text8
from lkf_plugin.errors import UserError


def test_ids_are_mdlms() -> None:
    tokenizer = Text8Tokenizer()
    assert tokenizer("Az b", add_special_tokens=False)["input_ids"] == [8, 33, 34, 9]
    assert tokenizer.vocab_size == len(tokenizer) == 35
    assert tokenizer.mask_token_id == 4 and tokenizer.unk_token_id == 7
    assert tokenizer.batch_decode([[8, 33, 34, 9]]) == ["az b"]


@pytest.mark.parametrize("text", ["hello world", "A-é\u4e2d?z", ""])
def test_table_equals_tokenizer(text: str) -> None:
    expected = Text8Tokenizer()(text, add_special_tokens=False)["input_ids"]
    assert encode_characters(text).tolist() == expected


def test_splits_and_documents(tmp_path: Path) -> None:
    for split, text in (("train", "abcdefgh"), ("validation", "xyz"), ("test", "qrst")):
        (tmp_path / f"text8.{split}.txt").write_text(text)
    corpus = Text8Corpus(tmp_path, 3, "test")
    assert list(corpus.documents("train")) == ["abc", "def"]
    assert list(corpus.documents("valid")) == ["qrs"]
    assert list(Text8Corpus(tmp_path, 3, "validation").documents("valid")) == ["xyz"]


def test_archive_and_plain_file_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuts = {"train": (0, 6), "validation": (6, 8), "test": (8, 10)}
    monkeypatch.setattr(text8, "_CUTS", cuts)
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    plain.mkdir()
    packed.mkdir()
    (plain / "text8").write_text("abcdefghij")
    with zipfile.ZipFile(packed / "text8.zip", "w") as archive:
        archive.writestr("text8", "abcdefghij")
    expected = {"train": "abcdef", "validation": "gh", "test": "ij"}
    assert read_text8(plain) == read_text8(packed) == expected
    prints = [Text8Corpus(folder, 2, "test").fingerprint() for folder in (plain, packed)]
    assert prints[0] == prints[1]


def test_no_files_and_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    with pytest.raises(UserError, match=r"put text8\.zip there"):
        read_text8(tmp_path / "raw")
    assert list((tmp_path / "raw").iterdir()) == []


def test_broken_archive(tmp_path: Path) -> None:
    (tmp_path / "text8.zip").write_text("not a zip")
    with pytest.raises(UserError, match="delete it"):
        read_text8(tmp_path)


def test_files_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "text8").write_bytes(b"the words \xff")
    with pytest.raises(UserError, match="text8:1 is not utf-8 text at byte 10"):
        read_text8(tmp_path)
    (tmp_path / "text8").unlink()
    with zipfile.ZipFile(tmp_path / "text8.zip", "w") as archive:
        archive.writestr("text8", b"the words \xff")
    with pytest.raises(UserError, match="is not the text8 archive"):
        read_text8(tmp_path)


def test_another_archive_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    monkeypatch.setattr(urllib.request, "urlopen", lambda *a, **k: io.BytesIO(b"another archive"))
    with pytest.raises(UserError, match="gave another archive than text8"):
        read_text8(tmp_path)
    assert list(tmp_path.iterdir()) == []

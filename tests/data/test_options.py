from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig

from lkf_plugin.data.options import absolute, read_options
from lkf_plugin.errors import UserError

Make = Callable[..., DictConfig]


def test_reads_values(make_config: Make) -> None:
    options, length = read_options(make_config(32, valid_fraction=0.25, whitespace="collapse"))
    assert (options.valid_fraction, options.whitespace, length) == (0.25, "collapse", 32)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"kind": "novel"}, "data.kind=novel is unknown"),
        ({"valid_fracton": 0.2}, "did you mean data.valid_fraction"),
        ({"clauses": 4}, "not an option of data.kind=text"),
        ({"train": None}, "data.train=null must be text"),
        ({"path": "???"}, "data.path must name"),
        ({"path": None}, "data.path must name"),
        ({"wrap": "yes"}, "data.wrap=yes must be true or false"),
        ({"vocab_size": 30.5}, "data.vocab_size=30.5 must be a whole number"),
        ({"valid_fraction": 0.9}, "must be a number in"),
        ({"document": "page"}, "take null, paragraph, line or file"),
        ({"streaming": True}, "data.streaming"),
        ({"valid": "other"}, "must be equal"),
        ({"train": "a/b", "valid": "a/b"}, "plain name"),
        ({"layout": "windows", "wrap": False}, "data.wrap=true"),
        ({"drop_digit_windows": True}, "data.layout=windows"),
        ({"layout": "windows", "stride": 0}, "data.stride"),
        ({"kind": "text8"}, "data.tokenizer_name_or_path=train must be text8"),
        ({"kind": "hub"}, "data.dataset"),
        ({"kind": "agreetext", "tokenizer_name_or_path": "agreetext"}, "8 \\* data.clauses = 32"),
    ],
)
def test_mistakes(make_config: Make, data: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_options(make_config(16, **data))


def test_length_must_hold_bos_and_eos(make_config: Make) -> None:
    with pytest.raises(UserError, match="model.length=2"):
        read_options(make_config(2))


def test_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/someone")
    assert absolute("~/x") == Path("/home/someone/x")
    assert absolute("a/../b") == Path(os.path.realpath(tmp_path)) / "b"

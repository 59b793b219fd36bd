"""The tokenizer of characters: a to z and the blank, from running text, and back from its files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import DictConfig

from lkf_plugin.data.characters import SYMBOLS, character_tokenizer
from lkf_plugin.data.prepare import prepare
from lkf_plugin.data.tokenizer import (
    load_tokenizer,
    make_encoder,
    token_ids,
    tokenizer_digest,
)

Make = Callable[..., DictConfig]
TEXT = "Fellow-Citizens:  of the Sénate, 1,234 $5 the END."
PLAIN = "fellow citizens of the senate the end "


def test_letters_and_blanks_are_what_is_left():
    tokenizer = load_tokenizer("characters")
    ids = token_ids(tokenizer)
    assert (ids.vocab_size, ids.mask) == (len(SYMBOLS), SYMBOLS.index("[MASK]")) == (32, 4)
    encoded = tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    assert [SYMBOLS[i] for i in encoded] == [*PLAIN]
    assert tokenizer.decode(encoded) == PLAIN


def test_special_tokens_written_out_are_text():
    (encoded,) = make_encoder(character_tokenizer(), with_starts=False)(["a [MASK] b"])
    assert "".join(SYMBOLS[i] for i in encoded.ids) == "a mask b"


def test_words_start_at_their_blank():
    (encoded,) = make_encoder(character_tokenizer(), with_starts=True)(["the  man's end"])
    assert encoded.starts is not None
    text = "".join(SYMBOLS[i] for i in encoded.ids)
    assert text == "the man s end"
    assert [text[i:].split()[0] for i in encoded.starts.nonzero()[0]] == ["the", "man", "end"]


def test_its_files_are_the_same_tokenizer(tmp_path: Path):
    tokenizer = load_tokenizer("characters")
    tokenizer.save_pretrained(tmp_path)
    again = load_tokenizer(str(tmp_path))
    assert tokenizer_digest(again) == tokenizer_digest(tokenizer)
    assert again.decode(again(TEXT, add_special_tokens=False)["input_ids"]) == PLAIN


@pytest.mark.parametrize("layout", ["windows", "mdlm"])
def test_a_text_is_prepared_with_it(make_config: Make, tmp_path: Path, layout: str):
    (tmp_path / "text.txt").write_text(f"{TEXT} " * 40)
    options = {"kind": "text", "path": str(tmp_path / "text.txt"), "layout": layout}
    prepared = prepare(make_config(10, tokenizer_name_or_path="characters", **options))
    assert prepared.vocab_size == 32 and prepared.train is not None
    row = prepared.train[0]["input_ids"].tolist()
    shown = "".join(SYMBOLS[i] for i in row if i > 4)
    assert len(row) == 10 and shown in PLAIN * 3

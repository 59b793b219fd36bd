"""Prompts become the ids that training windows have; what cannot is refused in a sentence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerBase

from lkf_plugin.data.agreetext import agreetext_tokenizer
from lkf_plugin.data.layout import Encoded, wrapped
from lkf_plugin.data.prompt import GAP, prompt_ids
from lkf_plugin.data.text8 import Text8Tokenizer
from lkf_plugin.data.tokenizer import complete, load_tokenizer, make_encoder, token_ids
from lkf_plugin.data.train_tokenizer import train_tokenizer
from lkf_plugin.errors import UserError

TEXT = ["The quick fox of the hill sees the small dog near the river. and/or, of the fox"] * 30
LENGTH = 16


@pytest.fixture(scope="module")
def pairs() -> PreTrainedTokenizerBase:
    return complete(train_tokenizer(lambda: iter(TEXT), "bpe", 320), "pairs")


@pytest.fixture(scope="module")
def pieces() -> PreTrainedTokenizerBase:
    return complete(train_tokenizer(lambda: iter(TEXT), "wordpiece", 90), "pieces")


def filled(tokenizer: PreTrainedTokenizerBase, prompt: str, framed: bool = False) -> list[int]:
    return prompt_ids(prompt, tokenizer, LENGTH, framed=framed, full=True).tolist()


def encoded(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    return make_encoder(tokenizer, False)([text])[0].ids.tolist()


def test_a_gap_brings_its_own_blank(pairs: PreTrainedTokenizerBase) -> None:
    mask = token_ids(pairs).mask
    the, of_the = encoded(pairs, "The"), encoded(pairs, " of the")
    wanted = [*the, mask, mask, *of_the, mask]
    for prompt in ("The [MASK][MASK] of the [MASK]", "The[MASK] [MASK] of the[MASK]"):
        assert filled(pairs, prompt) == wanted + [mask] * (LENGTH - len(wanted))
    word = encoded(pairs, " fox")
    assert len(word) == 1 and pairs.decode([*the, *word, *of_the]) == "The fox of the"


def test_a_blank_at_the_end_and_line_breaks_are_text(pairs: PreTrainedTokenizerBase) -> None:
    mask = token_ids(pairs).mask
    parts = [encoded(pairs, text) for text in ("The", "\n", "the ")]
    wanted = [*parts[0], mask, *parts[1], mask, *parts[2]]
    assert filled(pairs, "The [MASK]\n[MASK]the ")[: len(wanted)] == wanted
    assert wanted[-1] == encoded(pairs, " ")[0]


def test_word_pieces_know_no_blanks(pieces: PreTrainedTokenizerBase) -> None:
    mask = token_ids(pieces).mask
    wanted = [*encoded(pieces, "the"), mask, *encoded(pieces, "of the"), mask]
    assert filled(pieces, "The [MASK] of the [MASK]")[: len(wanted)] == wanted


def test_characters_keep_their_blanks() -> None:
    tokenizer = complete(Text8Tokenizer(), "text8")
    mask, blank = token_ids(tokenizer).mask, encoded(tokenizer, " ")[0]
    assert filled(tokenizer, "a [MASK] b")[1:5] == [blank, mask, blank, encoded(tokenizer, "b")[0]]


def test_framed_as_wrapped_training_windows_are(pairs: PreTrainedTokenizerBase) -> None:
    ids = token_ids(pairs)
    text = TEXT[0]
    [(rows, _)] = wrapped(
        [Encoded(make_encoder(pairs, False)([text])[0].ids)], LENGTH, ids.bos, ids.eos
    )
    inside = rows[0, 1:-1].tolist()
    assert (rows[0, 0], rows[0, -1]) == (ids.bos, ids.eos)
    words = pairs.decode(inside[:4])
    row = filled(pairs, words, framed=True)
    assert row[:5] == [ids.bos, *inside[:4]] and row[-1] == ids.eos
    assert set(row[5:-1]) == {ids.mask}
    open_end = prompt_ids(words, pairs, LENGTH, framed=True, full=False).tolist()
    assert open_end == [*row[:-1], ids.mask]


def test_the_full_stop_of_agreetext_is_a_word() -> None:
    tokenizer = complete(agreetext_tokenizer(), "agreetext")
    stop = tokenizer.get_vocab()["."]
    assert filled(tokenizer, "[MASK] . [MASK]")[:3] == [tokenizer.mask_token_id, stop] + [
        tokenizer.mask_token_id
    ]


def test_a_file_is_read(
    pairs: PreTrainedTokenizerBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my prompt.txt").write_bytes(b"\xef\xbb\xbfThe [MASK]\r\n\n")
    (tmp_path / "noending").write_text("The [MASK]")
    monkeypatch.chdir(tmp_path)
    wanted = filled(pairs, "The [MASK]")
    for name in ("my prompt.txt", str(tmp_path / "my prompt.txt"), "./noending", "noending"):
        assert filled(pairs, name) == wanted


@pytest.mark.parametrize(
    "text", ["The and/or [MASK]", "and/or the fox", "/ [MASK]", "fox. the", "the\nand/or"]
)
def test_a_slash_in_a_text_is_text(pairs: PreTrainedTokenizerBase, text: str) -> None:
    whole = text.replace(GAP, "").rstrip(" ") if text.endswith(GAP) else text
    assert encoded(pairs, whole)[0] in filled(pairs, text)


# a prompt, what the sentence holds
REFUSED: list[tuple[str, str]] = [
    ("", "is empty"),
    (" \n ", "is empty"),
    ("no-such.txt", "looks like a file and there is none"),
    ("no such file.TXT", "looks like a file and there is none"),
    ("prompts/first", "looks like a file and there is none"),
    ("/nowhere/prompt", "looks like a file and there is none"),
    ("../prompt.text", "looks like a file and there is none"),
    ("C:\\prompts\\first", "looks like a file and there is none"),
    ("a/" + "x" * 300, "looks like a file and there is none"),
    ("The [SEP] fox [MASK]", r"holds \[SEP\], a special word"),
    ("[PAD][MASK]", r"holds \[PAD\], a special word"),
    ("[CLS] The [MASK]", r"holds \[CLS\], a special word"),
    ("The [UNK] [MASK]", r"holds \[UNK\], a special word"),
    ("the fox " * 20 + GAP, "has 41 tokens, more than model.length=16|more than model.length=16"),
    (GAP * 17, "has 17 tokens, more than model.length=16"),
    ("\udcff fox [MASK]", "holds bytes that are no UTF-8"),
]


@pytest.mark.parametrize(("prompt", "message"), REFUSED, ids=[repr(p)[:30] for p, _ in REFUSED])
def test_refused(pairs: PreTrainedTokenizerBase, prompt: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        filled(pairs, prompt)
    assert "\n" not in str(caught.value) or "\n" in prompt


FILES: list[tuple[bytes, str]] = [
    (b"", "is empty"),
    (b"\n\n", "is empty"),
    (b"caf\xe9 [MASK]", "p.txt:1 is not utf-8 text at byte 3"),
    (b"a\0b", "p.txt:1 holds a NUL byte"),
    ("The [MASK]".encode("utf-16"), "p.txt:1 is not utf-8 text at byte 0"),
    (b"[SEP] [MASK]", r"holds \[SEP\]"),
]


@pytest.mark.parametrize(("content", "message"), FILES)
def test_refused_files(
    pairs: PreTrainedTokenizerBase, tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "p.txt").write_bytes(content)
    with pytest.raises(UserError, match=message):
        filled(pairs, str(tmp_path / "p.txt"))


def test_a_folder_is_no_prompt(pairs: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="looks like a file and there is none"):
        filled(pairs, f"{tmp_path}{os.sep}")


def test_nothing_to_fill(pairs: PreTrainedTokenizerBase) -> None:
    words = pairs.decode(encoded(pairs, " the fox" * 8)[:LENGTH])
    assert len(encoded(pairs, words)) == LENGTH
    with pytest.raises(UserError, match="leaves nothing to fill"):
        filled(pairs, words)
    with pytest.raises(UserError, match="less two for BOS and EOS"):
        filled(pairs, words, framed=True)


def test_other_marks_of_other_tokenizers(gpt2_folder: Path) -> None:
    tokenizer = load_tokenizer(str(gpt2_folder))
    with pytest.raises(UserError, match=r"holds <\|endoftext\|>, a special word"):
        filled(tokenizer, "the <|endoftext|> [MASK]")


def test_words_that_there_are_none_for(pieces: PreTrainedTokenizerBase) -> None:
    agree = complete(agreetext_tokenizer(), "agreetext")
    for tokenizer, prompt in ((agree, "zebra [MASK]"), (pieces, "日本 [MASK]")):
        with pytest.raises(UserError, match="no token for"):
            filled(tokenizer, prompt)

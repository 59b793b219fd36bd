from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lkf_plugin.data.tokenizer import (
    complete,
    load_tokenizer,
    make_encoder,
    token_ids,
    tokenizer_digest,
)
from lkf_plugin.data.train_tokenizer import train_tokenizer
from lkf_plugin.errors import UserError

TEXT = ["The quick fox sees the small dog near the river.", "A dog, a fox: 12 % of hills."] * 20


@pytest.mark.parametrize(("kind", "size"), [("bpe", 300), ("wordpiece", 70)])
def test_trained_tokenizer(kind: str, size: int) -> None:
    tokenizer = complete(train_tokenizer(lambda: iter(TEXT), kind, size), "trained")
    ids = token_ids(tokenizer)
    assert (ids.pad, ids.bos, ids.eos, ids.mask, ids.vocab_size) == (0, 2, 3, 4, size)
    encoded = tokenizer(TEXT[0])["input_ids"]
    assert (encoded[0], encoded[-1]) == (2, 3)
    plain = tokenizer.decode(encoded, skip_special_tokens=True)
    assert plain.replace(" ", "").lower() == TEXT[0].replace(" ", "").lower()
    if kind == "bpe":
        assert plain == TEXT[0]


@pytest.mark.parametrize(("kind", "size"), [("bpe", 300), ("wordpiece", 70)])
def test_training_is_deterministic(kind: str, size: int) -> None:
    digests = {tokenizer_digest(train_tokenizer(lambda: iter(TEXT), kind, size)) for _ in range(3)}
    assert len(digests) == 1


@pytest.mark.parametrize(("kind", "size"), [("bpe", 200), ("wordpiece", 20)])
def test_vocabulary_too_small(kind: str, size: int) -> None:
    with pytest.raises(UserError, match=f"data.vocab_size={size}"):
        train_tokenizer(lambda: iter(TEXT), kind, size)


@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
def test_runs_are_cut_before_anything_else(kind: str) -> None:
    letters = random.Random(0)
    dna = "".join(letters.choices("ACGT", k=40_000))  # in one piece: quadratic
    start = time.process_time()
    tokenizer = complete(train_tokenizer(lambda: iter([dna]), kind, 320), "dna")
    assert time.process_time() - start < 2.5
    ids = make_encoder(tokenizer, with_starts=False)([dna])[0].ids
    assert tokenizer.unk_token_id not in ids and len(ids) < 25_000
    plain = tokenizer.decode(ids.tolist())
    assert plain == dna if kind == "bpe" else plain.replace(" ", "") == dna.lower()
    ends = np.cumsum([len(tokenizer.decode([i]).removeprefix("##")) for i in ids])
    assert {*range(1_000, 40_001, 1_000)} <= {*ends.tolist()}


def test_text_without_runs_gives_the_tokenizer_it_always_gave() -> None:
    engine = train_tokenizer(lambda: iter(TEXT), "bpe", 300).backend_tokenizer
    assert json.loads(engine.to_str())["pre_tokenizer"]["type"] == "ByteLevel"


def test_the_rule_is_saved_with_the_tokenizer(tmp_path: Path) -> None:
    text = "ACGT" * 700 + " and words"
    tokenizer = complete(train_tokenizer(lambda: iter([text]), "bpe", 280), "t")
    tokenizer.save_pretrained(tmp_path / "kept")
    again = load_tokenizer(str(tmp_path / "kept"))
    assert tokenizer_digest(again) == tokenizer_digest(tokenizer)
    assert again.decode(again.encode(text, add_special_tokens=False)) == text


def test_size_by_the_amount_of_text() -> None:
    assert token_ids(train_tokenizer(lambda: iter(TEXT), "bpe", "auto")).vocab_size <= 320


def test_learning_from_a_part() -> None:
    texts = [f"{'early' if i < 500 else 'late'} words number {i % 10}" for i in range(1_000)]
    whole = train_tokenizer(lambda: iter(texts), "bpe", 320)
    part = train_tokenizer(lambda: iter(texts), "bpe", 320, characters=2_000)
    assert {"\u0120words", "early", "late"} <= whole.get_vocab().keys() & part.get_vocab().keys()


def test_errors_of_the_text_come_through_as_they_are() -> None:
    def broken() -> Iterator[str]:
        yield "a text"
        raise UserError("line 2 is bad.")

    with pytest.raises(UserError, match="line 2 is bad"):
        train_tokenizer(broken, "bpe", 300)


def test_interrupted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    def endless(*args: object) -> None:
        released.wait(60)

    monkeypatch.setattr("lkf_plugin.data.train_tokenizer._byte_pairs", endless)
    # a process that was started in the background ignores Ctrl-C until told otherwise
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        train_tokenizer(lambda: iter(TEXT), "bpe", 300)
    assert time.monotonic() - start < 10
    signal.signal(signal.SIGINT, before)
    released.set()

from __future__ import annotations

import pytest

from lkf_plugin.data.tokenizer import complete, token_ids, tokenizer_digest
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

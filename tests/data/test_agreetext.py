from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from omegaconf import DictConfig

from lkf_plugin.corpora import agreetext
from lkf_plugin.data import prepare
from lkf_plugin.data.agreetext import agreetext_tokenizer
from lkf_plugin.data.tokenizer import complete, token_ids
from lkf_plugin.errors import UserError

Make = Callable[..., DictConfig]


def test_tokenizer_counts_words_and_mask_only() -> None:
    tokenizer = complete(agreetext_tokenizer(), "agreetext")
    ids = token_ids(tokenizer)
    assert (ids.vocab_size, ids.mask, len(tokenizer)) == (88, 87, 88)
    assert ids.pad == ids.bos == ids.eos == 86 != ids.mask
    sample = agreetext.sample(3, 4, seed=5)
    for row, text in zip(sample, tokenizer.batch_decode(sample), strict=True):
        assert text.split() == [agreetext.words()[i] for i in row]
        assert tokenizer.encode(text, add_special_tokens=False) == row.tolist()


def test_word_outside_the_language_is_an_error() -> None:
    with pytest.raises(Exception, match="UNK"):
        agreetext_tokenizer().encode("these qwertys")


def config(make_config: Make, length: int = 16, **data: object) -> DictConfig:
    values = {"clauses": 2, "train_sequences": 50, "valid_sequences": 7, "train": "agree"}
    values |= {"valid": "agree", "tokenizer_name_or_path": "agreetext"}
    return make_config(length, kind="agreetext", **{**values, **data})


def test_prepared(make_config: Make) -> None:
    prepared = prepare(config(make_config))
    assert prepared.train is not None and prepared.valid is not None
    assert torch.equal(prepared.train[:]["input_ids"], agreetext.sample(50, 2, 0))
    assert torch.equal(prepared.valid[:]["input_ids"], agreetext.sample(7, 2, 1))
    assert bool((prepared.train[:]["attention_mask"] == 1).all())
    assert prepared.vocab_size == 88 and prepared.mask_index == 87


def test_seeds_and_sizes_change_the_digest(make_config: Make) -> None:
    changes = [{}, {"train_seed": 2}, {"valid_sequences": 8}, {"train_sequences": 51}]
    assert len({prepare(config(make_config, **c)).digest for c in changes}) == 4


def test_equal_seeds(make_config: Make) -> None:
    with pytest.raises(UserError, match="must differ"):
        prepare(config(make_config, train_seed=1))

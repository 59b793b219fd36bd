"""Small corpora, tokenizers and configurations for the data tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

WORDS = "a the small quick fox dog river hill runs sees likes finds over under near with".split()


def sentence(number: int, words: int = 9) -> str:
    """A sentence that depends on its number only."""
    return " ".join(WORDS[(number * 7 + i * (number % 5 + 1)) % len(WORDS)] for i in range(words))


@pytest.fixture
def bert_folder(tmp_path: Path) -> Path:
    """A WordPiece vocabulary in BERT's file, its mask inside the vocabulary."""
    folder = tmp_path / "bert"
    folder.mkdir()
    letters = [*"abcdefghijklmnopqrstuvwxyz0123456789$%.,[]"]
    pieces = [*letters, *(f"##{letter}" for letter in letters)]
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (folder / "vocab.txt").write_text("\n".join([*specials, *pieces, *WORDS[1:]]) + "\n")
    return folder


@pytest.fixture
def gpt2_folder(tmp_path: Path) -> Path:
    """Byte pairs in GPT-2's two files: no mask, no padding, one special token, the last."""
    folder = tmp_path / "gpt2"
    folder.mkdir()
    engine = Tokenizer(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=299, initial_alphabet=alphabet, show_progress=False)
    engine.train_from_iterator([sentence(i) for i in range(40)], trainer)
    engine.add_special_tokens(["<|endoftext|>"])
    engine.model.save(str(folder))
    vocabulary = engine.get_vocab(with_added_tokens=True)
    import json

    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    return folder


@pytest.fixture
def corpus_file(tmp_path: Path) -> Path:
    """Forty paragraphs."""
    path = tmp_path / "corpus.txt"
    path.write_text("\n\n".join(sentence(i) for i in range(40)) + "\n")
    return path


@pytest.fixture
def make_config(tmp_path: Path, corpus_file: Path) -> Callable[..., DictConfig]:
    """Builds a configuration of kind ``text``; keyword arguments are keys of ``data``."""

    def make(length: int = 16, **data: Any) -> DictConfig:
        base = {
            "kind": "text",
            "train": "tiny",
            "valid": "tiny",
            "tokenizer_name_or_path": "train",
            "cache_dir": str(tmp_path / "cache"),
            "wrap": True,
            "streaming": False,
        }
        if data.get("kind", "text") == "text":
            base |= {"path": str(corpus_file), "tokenizer_type": "bpe", "vocab_size": 300}
        return OmegaConf.create({"data": {**base, **data}, "model": {"length": length}})

    return make

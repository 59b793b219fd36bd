"""AgreeText as a corpus: raw ids from the generator, and a word-level tokenizer for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from lkf_plugin.corpora import agreetext
from lkf_plugin.data.hashing import value_digest
from lkf_plugin.data.layout import Block
from lkf_plugin.data.options import DataOptions

MASK_TOKEN = "[MASK]"


def agreetext_tokenizer() -> PreTrainedTokenizerBase:
    """The words in the order of their ids, then the mask: nothing else, so that V counts no more.

    Every sequence is full, so BOS, EOS and padding are never written; the last word (the full
    stop) stands for them because MDLM wants them to exist.
    """
    words = agreetext.words()
    vocabulary = {word: index for index, word in enumerate([*words, MASK_TOKEN])}
    # No unknown token: a word that is not in the language is an error, not a mask.
    engine = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    stop = words[-1]
    return PreTrainedTokenizerFast(
        tokenizer_object=engine,
        mask_token=MASK_TOKEN,
        bos_token=stop,
        eos_token=stop,
        pad_token=stop,
        clean_up_tokenization_spaces=False,
    )


class AgreeTextCorpus:
    """Samples of AgreeText; the two splits differ by their seed."""

    def __init__(self, options: DataOptions) -> None:
        self.options = options

    def fingerprint(self) -> dict[str, Any]:
        """The words and the generator's first sequences: a changed generator changes it."""
        probe = agreetext.sample(16, self.options.clauses, self.options.train_seed)
        return {"words": agreetext.words(), "probe": value_digest(probe.tolist())}

    def blocks(self, split: str) -> Iterator[Block]:
        """The sequences [n, 8 * clauses], all of them attended."""
        train = split == "train"
        count = self.options.train_sequences if train else self.options.valid_sequences
        seed = self.options.train_seed if train else self.options.valid_seed
        ids_BL = agreetext.sample(count, self.options.clauses, seed).numpy().astype(np.int32)
        yield ids_BL, np.ones(ids_BL.shape, dtype=np.int8)

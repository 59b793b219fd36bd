"""A tokenizer of whole words, for corpora that are generated as ids."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

MASK_TOKEN = "[MASK]"


def word_tokenizer(words: Sequence[str]) -> PreTrainedTokenizerBase:
    """The words in the order of their ids, then the mask: nothing else, so that V counts no more.

    For full sequences, where BOS, EOS and padding are never written; the last word stands for them
    because MDLM wants them to exist.

    Args:
        words: without blanks in them.
    """
    vocabulary = {word: index for index, word in enumerate([*words, MASK_TOKEN])}
    # No unknown token: a word that is not in the language is an error, not a mask.
    engine = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=engine,
        mask_token=MASK_TOKEN,
        bos_token=words[-1],
        eos_token=words[-1],
        pad_token=words[-1],
        clean_up_tokenization_spaces=False,
    )

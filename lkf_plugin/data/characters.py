"""The alphabet as a tokenizer: a to z and the blank, for any corpus of text.

text8's preparation, applied to running text: accents are stripped, letters lower-cased, and
whatever is no letter, in runs of any length, becomes one blank. Digits are not spelled out. Unlike
text8's own tokenizer it knows where words start, so that windows can.
"""

from __future__ import annotations

import string

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

NAME = "characters"
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SYMBOLS = (*SPECIALS, " ", *string.ascii_lowercase)


def character_tokenizer() -> PreTrainedTokenizerFast:
    """32 entries: five special ones, the blank, a to z."""
    vocabulary = {symbol: index for index, symbol in enumerate(SYMBOLS)}
    engine = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    engine.normalizer = normalizers.Sequence(
        [
            normalizers.NFKD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
            normalizers.Replace(Regex("[^a-z]+"), " "),
        ]
    )
    engine.pre_tokenizer = pre_tokenizers.Split(Regex("[a-z ]"), "isolated")
    engine.decoder = decoders.Fuse()
    engine.add_special_tokens([*SPECIALS])
    return PreTrainedTokenizerFast(
        tokenizer_object=engine,
        bos_token="[CLS]",
        eos_token="[SEP]",
        clean_up_tokenization_spaces=False,
        **{f"{token[1:-1].lower()}_token": token for token in SPECIALS},
    )

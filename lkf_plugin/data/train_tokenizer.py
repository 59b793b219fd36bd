"""Train a small tokenizer on a corpus."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable

from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from lkf_plugin.errors import UserError

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_LOG = logging.getLogger(__name__)


def train_tokenizer(
    documents: Callable[[], Iterable[str]], kind: str, vocab_size: int
) -> PreTrainedTokenizerBase:
    """Trains a tokenizer with special tokens [PAD] [UNK] [CLS] [SEP] [MASK] as ids 0 to 4.

    Args:
        documents: Gives the training text, which is read once or twice.
        kind: ``wordpiece`` (BERT's uncased rules) or ``bpe`` (GPT-2's byte-level rules, cased).
        vocab_size: Number of entries, the special ones among them.

    Raises:
        UserError: ``vocab_size`` cannot hold the alphabet.
    """
    engine = (_byte_pairs if kind == "bpe" else _word_pieces)(documents, vocab_size)
    size = engine.get_vocab_size()
    if size > vocab_size:
        raise UserError(
            f"data.vocab_size={vocab_size} cannot hold the alphabet: set at least {size}."
        )
    if size < vocab_size:
        _LOG.warning("The corpus gives only %d of the %d tokens asked for.", size, vocab_size)
    sep, cls = (SPECIALS.index(token) for token in ("[SEP]", "[CLS]"))
    engine.post_processor = processors.BertProcessing(("[SEP]", sep), ("[CLS]", cls))
    names = {f"{token[1:-1].lower()}_token": token for token in SPECIALS}
    return PreTrainedTokenizerFast(
        tokenizer_object=engine,
        bos_token="[CLS]",
        eos_token="[SEP]",
        clean_up_tokenization_spaces=False,
        **names,
    )


def _byte_pairs(documents: Callable[[], Iterable[str]], vocab_size: int) -> Tokenizer:
    engine = Tokenizer(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[*SPECIALS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    engine.train_from_iterator(documents(), trainer=trainer)
    return engine


def _word_pieces(documents: Callable[[], Iterable[str]], vocab_size: int) -> Tokenizer:
    """Trains word pieces so that the same text gives the same vocabulary.

    Left alone, the trainer numbers the pieces ``##x`` of one letter in the order of a hash table
    and breaks ties by these numbers: the vocabulary would differ from run to run. So they are
    collected first and given to it, sorted, as if they were special; the tokenizer is then built
    anew from the vocabulary.
    """
    draft = _bert_rules(models.WordPiece(unk_token="[UNK]"))
    spaced = {word for text in documents() for word in re.split("[ \n\t\r]+", text)}
    normal = draft.normalizer.normalize_str(" ".join(sorted(spaced)))
    words = {word for word, _ in draft.pre_tokenizer.pre_tokenize_str(normal)}
    later = {letter for word in words for letter in word[1:]}
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        special_tokens=[*SPECIALS, *(f"##{letter}" for letter in sorted(later))],
        show_progress=False,
    )
    draft.train_from_iterator(documents(), trainer=trainer)
    engine = _bert_rules(models.WordPiece(draft.get_vocab(), unk_token="[UNK]"))
    engine.add_special_tokens([*SPECIALS])
    return engine


def _bert_rules(model: models.Model) -> Tokenizer:
    engine = Tokenizer(model)
    engine.normalizer = normalizers.BertNormalizer(lowercase=True)
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.WordPiece()
    return engine

"""Train a small tokenizer on a corpus."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable

from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from lkf_plugin.data.corpus import AUTO
from lkf_plugin.data.survey import LONGEST_RUN, Documents, spread, suitable_vocab_size, survey
from lkf_plugin.errors import UserError

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_LOG = logging.getLogger(__name__)


# From the start of a run, or where the piece before ended: linear in the length of the text.
_PIECES_OF_RUNS = rf"(?:(?<!\S)|\G)\S{{{LONGEST_RUN}}}|(?:(?<!\s)|\G)\s{{{LONGEST_RUN}}}"


def train_tokenizer(
    documents: Documents,
    kind: str,
    vocab_size: int | str,
    characters: int | None = None,
) -> PreTrainedTokenizerBase:
    """Trains a tokenizer with special tokens [PAD] [UNK] [CLS] [SEP] [MASK] as ids 0 to 4.

    A text with runs of over 1,000 characters without a blank (DNA, base64), or of as many blanks,
    gives a tokenizer that cuts such runs into pieces of 1,000 before anything else, because the
    time that a word takes grows with the square of its length. Decoding is not touched by it.

    Ctrl-C ends the training at once.

    Args:
        documents: Gives the training text, which is read a few times.
        kind: ``wordpiece`` (BERT's uncased rules) or ``bpe`` (GPT-2's byte-level rules, cased).
        vocab_size: Number of entries, the special ones among them; ``auto`` is
            ``suitable_vocab_size``.
        characters: Learn from about so many characters, spread evenly; None learns from all.

    Raises:
        UserError: ``vocab_size`` cannot hold the alphabet.
    """
    text = survey(documents)
    documents = spread(documents, text.characters, characters)
    size = suitable_vocab_size(text.characters) if vocab_size == AUTO else int(vocab_size)
    build = _byte_pairs if kind == "bpe" else _word_pieces
    engine = _interruptible(lambda: build(documents, size, text.long_runs))
    made = engine.get_vocab_size()
    if made > size:
        raise UserError(f"data.vocab_size={size} cannot hold the alphabet: set at least {made}.")
    if made < size:
        _LOG.warning("The corpus gives only %d of the %d tokens asked for.", made, size)
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


def _interruptible(build: Callable[[], Tokenizer]) -> Tokenizer:
    """Calls a function whose compiled part hears no signals in a thread of its own.

    The main thread hears Ctrl-C and leaves; the other one ends with the process.
    """
    results: list[Tokenizer] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(build())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.1)
    if errors:
        raise errors[0]
    return results[0]


def _cut_runs(pre_tokenizer: pre_tokenizers.PreTokenizer) -> pre_tokenizers.PreTokenizer:
    """Cuts long runs into pieces before a pre-tokenizer sees them."""
    cut = pre_tokenizers.Split(Regex(_PIECES_OF_RUNS), "isolated")
    return pre_tokenizers.Sequence([cut, pre_tokenizer])


def _byte_pairs(documents: Documents, vocab_size: int, long_runs: bool) -> Tokenizer:
    engine = Tokenizer(models.BPE())
    by_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.pre_tokenizer = _cut_runs(by_bytes) if long_runs else by_bytes
    engine.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[*SPECIALS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    engine.train_from_iterator(documents(), trainer=trainer)
    return engine


def _word_pieces(documents: Documents, vocab_size: int, long_runs: bool) -> Tokenizer:
    """Trains word pieces so that the same text gives the same vocabulary.

    Left alone, the trainer numbers the pieces ``##x`` of one letter in the order of a hash table
    and breaks ties by these numbers: the vocabulary would differ from run to run. So they are
    collected first and given to it, sorted, as if they were special; the tokenizer is then built
    anew from the vocabulary.
    """
    draft = _bert_rules(models.WordPiece(unk_token="[UNK]"), long_runs)
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
    # Left at BERT's limit of 100 letters, every piece of a run would be unknown.
    longest = {"max_input_chars_per_word": LONGEST_RUN} if long_runs else {}
    model = models.WordPiece(draft.get_vocab(), unk_token="[UNK]", **longest)
    engine = _bert_rules(model, long_runs)
    engine.add_special_tokens([*SPECIALS])
    return engine


def _bert_rules(model: models.Model, long_runs: bool) -> Tokenizer:
    engine = Tokenizer(model)
    engine.normalizer = normalizers.BertNormalizer(lowercase=True)
    words = pre_tokenizers.BertPreTokenizer()
    engine.pre_tokenizer = _cut_runs(words) if long_runs else words
    engine.decoder = decoders.WordPiece()
    return engine

"""The seam: what a corpus is to preparation, configuration and evaluation.

A corpus is one file: its settings, and a class registered by its kind::

    @CORPORA.add("sotu")
    class SotuCorpus(Documents): ...

``data.kind`` names it. It gives text (``Documents``), which is tokenized and laid out, or ready
token sequences (``Sequences``) with a tokenizer of its own. Nothing else asks for a corpus by its
kind.

Shape legend: S samples, L positions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

from torch import Tensor
from transformers import PreTrainedTokenizerBase
from typing_extensions import Self

from lkf_plugin.data.layout import Block
from lkf_plugin.errors import UserError
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.registry import Registry
from lkf_plugin.settings.fields import (
    A_PATH,
    Choice,
    FieldType,
    Flag,
    Group,
    Name,
    Number,
    Words,
)

AUTO = "auto"
VALID = "valid"  # name of a rule's share in records
TRAIN = "train"  # as a tokenizer's name: one is trained on the corpus
OptionalPath = Annotated[str | None, Words(A_PATH, null=True)]
OptionalName = Annotated[str | None, Words(null=True)]


class Full(FieldType):
    """``wrap`` where no sequence can be shorter than L."""

    def words(self) -> str:
        """What is allowed."""
        return "true: this corpus fills every sequence to its end"

    def __call__(self, value: Any) -> bool:
        """``true``."""
        if value is not True:
            raise ValueError(self.words())
        return True


class VocabularySize(FieldType):
    """Entries of a tokenizer that is trained."""

    within = Number(low=6, high=1_000_000, whole=True)

    def words(self) -> str:
        """What is allowed."""
        return f"{self.within.words()}, or {AUTO}"

    def __call__(self, value: Any) -> int | str:
        """A number or ``auto``."""
        if value == AUTO:
            return AUTO
        size = self.within(value)
        assert isinstance(size, int)
        return size


class CorpusSettings(Group):
    """What every corpus' group has; a kind adds its own keys.

    ``train`` and ``valid`` only name the prepared files, as MDLM does; what is read is decided by
    ``kind`` and its keys. A key whose type is a path is made absolute where the command was typed.

    Attributes:
        elsewhere: own keys that the digest of prepared data does not cover by their values, since
            it covers what they lead to: paths and names by the fingerprint, what decides the
            tokenizer by the tokenizer's digest.
    """

    kind: Name
    train: Name
    valid: Name
    tokenizer_name_or_path: Name
    cache_dir: Annotated[str, Words(A_PATH)] = "~/.cache/lkf"
    wrap: Flag = True
    streaming: Flag = False

    elsewhere: ClassVar[tuple[str, ...]] = ()

    def check(self, length: int) -> None:
        """Rules between settings; a kind's own go on from these.

        Args:
            length: L, ``model.length``.

        Raises:
            UserError: says what to set.
        """
        if not isinstance(length, int) or length < 3:
            raise UserError(f"model.length={length} must be a whole number of at least 3.")
        if self.train != self.valid:
            raise UserError(
                f"data.train={self.train} and data.valid={self.valid} name the files of one "
                "corpus and must be equal; choose the held-out part by the corpus's own options."
            )
        if Path(self.train).name != self.train:
            raise UserError(f"data.train={self.train} must be a plain name without folders.")
        if self.streaming:
            raise UserError("data.streaming=true is not supported: set data.streaming=false.")

    @property
    def in_windows(self) -> bool:
        """Whether a sequence is a window from a word on, without BOS and EOS."""
        return False

    def covered(self) -> dict[str, Any]:
        """Own keys and values that the digest of prepared data covers."""
        left_out = {*CorpusSettings.model_fields, *self.elsewhere}
        return {key: value for key, value in self.model_dump().items() if key not in left_out}


class TextSettings(CorpusSettings):
    """Of text whose tokenizer may be trained and whose layout may be chosen."""

    tokenizer_type: Annotated[str, Choice("wordpiece", "bpe")] = "bpe"
    vocab_size: Annotated[int | str, VocabularySize()] = 4096
    tokenizer_characters: Annotated[
        int | None, Number(low=1_000, high=2**40, whole=True, null=True)
    ] = None
    layout: Annotated[str, Choice("mdlm", "windows")] = "mdlm"
    stride: Annotated[int | None, Number(low=1, whole=True, null=True)] = None
    drop_digit_windows: Flag = False

    elsewhere: ClassVar[tuple[str, ...]] = ("tokenizer_type", "vocab_size", "tokenizer_characters")

    def check(self, length: int) -> None:
        """Adds the rules of layouts."""
        super().check(length)
        if self.in_windows and not self.wrap:
            raise UserError(
                "data.layout=windows fills every sequence to its end: set data.wrap=true."
            )
        if not self.in_windows and (self.drop_digit_windows or self.stride is not None):
            raise UserError("data.drop_digit_windows and data.stride need data.layout=windows.")

    @property
    def in_windows(self) -> bool:
        return self.layout == "windows"


class SampleRule(ABC):
    """What tells right samples of a generated corpus from wrong ones."""

    @abstractmethod
    def valid(self, ids_SL: Tensor) -> Tensor:
        """Whether each sample is right, [S], bool; records call the share ``VALID``."""

    def beside(self, ids_SL: Tensor) -> Mapping[str, Estimate]:
        """What must stand beside the share, by metric."""
        return {}


class Corpus(ABC):
    """A corpus; subclass ``Documents`` or ``Sequences``.

    Attributes:
        Settings: what its group may say.
        rule: judges samples in place of a language model; None where nothing is right or wrong.
    """

    Settings: ClassVar[type[CorpusSettings]] = CorpusSettings
    rule: ClassVar[SampleRule | None] = None

    @classmethod
    def from_settings(cls, settings: Any, length: int, cache: Path) -> Self:
        """The corpus that settings describe; one that needs more than them overrides this.

        Args:
            settings: of its ``Settings``.
            length: L.
            cache: the folder ``data.cache_dir``.
        """
        return cls(settings)  # type: ignore[call-arg]

    @classmethod
    def own_tokenizer(cls, settings: Any) -> PreTrainedTokenizerBase | None:
        """A tokenizer that it brings along; None takes ``data.tokenizer_name_or_path``.

        It must be whole again after ``save_pretrained``.
        """
        return None

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """What decides the contents: digests or a pinned revision, and the rule of the split."""


class Documents(Corpus):
    """A corpus of text."""

    Settings: ClassVar[type[CorpusSettings]] = TextSettings

    @abstractmethod
    def documents(self, split: str) -> Iterator[str]:
        """Yields the documents of ``train`` or ``valid``, in the same order each time."""


class Sequences(Corpus):
    """A corpus of token ids, for which ``own_tokenizer`` has the words."""

    def __init__(self, settings: Any, length: int) -> None:
        self.settings = settings
        self.length = length

    @classmethod
    def from_settings(cls, settings: Any, length: int, cache: Path) -> Self:
        return cls(settings, length)

    @classmethod
    @abstractmethod
    def own_tokenizer(cls, settings: Any) -> PreTrainedTokenizerBase: ...

    @abstractmethod
    def blocks(self, split: str) -> Iterator[Block]:
        """Yields ids and attention masks [n, L] of ``train`` or ``valid``."""


CORPORA: Registry[type[Corpus]] = Registry("corpus", "lkf_plugin.data")


def every_nth(items: Iterable[str], n: int, offset: int, split: str) -> Iterator[str]:
    """Items whose index is ``offset`` modulo ``n`` (``valid``) or all the others (``train``)."""
    held_out = split == "valid"
    return (item for i, item in enumerate(items) if (i % n == offset) is held_out)

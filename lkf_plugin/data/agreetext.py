"""``agreetext``: raw ids from the generator of a small language, and its grammar as a rule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from lkf_plugin.corpora import agreetext
from lkf_plugin.data.corpus import CORPORA, CorpusSettings, Full, SampleRule, Sequences
from lkf_plugin.data.hashing import value_digest
from lkf_plugin.data.layout import Block
from lkf_plugin.data.word_tokenizer import word_tokenizer
from lkf_plugin.errors import UserError
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.settings.fields import Choice, Number


def agreetext_tokenizer() -> PreTrainedTokenizerBase:
    """The words in the order of their ids, then the mask."""
    return word_tokenizer(agreetext.words())


class AgreeTextSettings(CorpusSettings):
    """How many sequences of how many clauses, from which seeds."""

    tokenizer_name_or_path: Annotated[str, Choice("agreetext")]
    wrap: Annotated[bool, Full()] = True
    clauses: Annotated[int, Number(low=1, high=1_000, whole=True)] = 4
    train_sequences: Annotated[int, Number(low=1, high=2**40, whole=True)] = 50_000
    valid_sequences: Annotated[int, Number(low=1, high=2**40, whole=True)] = 2_000
    train_seed: Annotated[int, Number(whole=True)] = 0
    valid_seed: Annotated[int, Number(whole=True)] = 1

    def check(self, length: int) -> None:
        """Length and seeds."""
        super().check(length)
        if length != agreetext.CLAUSE_LENGTH * self.clauses:
            raise UserError(
                f"model.length={length} must be 8 * data.clauses = {8 * self.clauses} for "
                "agreetext."
            )
        if self.train_seed == self.valid_seed:
            raise UserError("data.train_seed and data.valid_seed must differ.")


class GrammarRule(SampleRule):
    """What the grammar allows."""

    def valid(self, ids_SL: Tensor) -> Tensor:
        return agreetext.valid(ids_SL)

    def beside(self, ids_SL: Tensor) -> dict[str, Estimate]:
        """Entropy of (topic, numbers) among the valid, in nats, with that of as many perfect texts.

        Nothing where none is valid.
        """
        spread = agreetext.configuration_entropy(ids_SL)
        if not spread.rows:
            return {}
        return {
            "configuration_entropy": Estimate(spread.plug_in, None, spread.rows),
            "configuration_entropy_of_as_many_perfect": Estimate(
                spread.expected, None, spread.rows
            ),
        }


@CORPORA.add("agreetext")
class AgreeTextCorpus(Sequences):
    """Samples of AgreeText; the two splits differ by their seed."""

    Settings = AgreeTextSettings
    rule = GrammarRule()

    @classmethod
    def own_tokenizer(cls, settings: Any) -> PreTrainedTokenizerBase:
        return agreetext_tokenizer()

    def fingerprint(self) -> dict[str, Any]:
        """The words and the generator's first sequences: a changed generator changes it."""
        probe = agreetext.sample(16, self.settings.clauses, self.settings.train_seed)
        return {"words": agreetext.words(), "probe": value_digest(probe.tolist())}

    def blocks(self, split: str) -> Iterator[Block]:
        """The sequences [n, 8 * clauses], all of them attended."""
        train = split == "train"
        count = self.settings.train_sequences if train else self.settings.valid_sequences
        seed = self.settings.train_seed if train else self.settings.valid_seed
        ids_BL = agreetext.sample(count, self.settings.clauses, seed).numpy().astype(np.int32)
        yield ids_BL, np.ones(ids_BL.shape, dtype=np.int8)

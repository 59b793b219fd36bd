"""How good samples are: a judge's perplexity on text, the valid fraction on AgreeText.

Shape legend: S samples, L positions.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from lkf_plugin.corpora import agreetext
from lkf_plugin.errors import UserError
from lkf_plugin.evaluate.diversity import as_sequences, diversity
from lkf_plugin.judge.judge import Judge, JudgeScore, decode_samples
from lkf_plugin.records.estimate import Estimate, mean_and_error

VALID = "valid"


class Quality(Protocol):
    """One figure that says how good a set of samples is, with its diversity beside.

    Attributes:
        metric: name of the figure; None where nothing judges.
        higher_is_better: the figure's direction.
        judge: who gave it.
    """

    higher_is_better: bool
    judge: Judge | None

    @property
    def metric(self) -> str | None: ...

    def figure(self, ids_SL: Tensor) -> Estimate | None:
        """The figure alone."""

    def measure(self, ids_SL: Tensor) -> dict[str, Estimate]:
        """The figure with everything that must stand beside it."""


@dataclass
class TextQuality:
    """Generative perplexity by a judge, if there is one, and diversity.

    Args:
        tokenizer: the model's.
        judge: None measures diversity only.
        length: judge tokens a sample is truncated to: L of the model.
        batch_size: of the judge.
        self_bleu_subset: texts that enter self-BLEU; 0 leaves it out.
    """

    tokenizer: Any
    judge: Judge | None
    length: int
    batch_size: int = 8
    self_bleu_subset: int = 100
    higher_is_better: bool = False

    @property
    def metric(self) -> str | None:
        return self.judge.metric if self.judge else None

    def figure(self, ids_SL: Tensor) -> Estimate | None:
        return self.figure_of_texts(decode_samples(self.tokenizer, ids_SL))

    def figure_of_texts(self, texts: list[str]) -> Estimate | None:
        """The judge's perplexity of texts."""
        if self.judge is None:
            return None
        return self.judge.score(texts, self.length, self.batch_size).estimate()

    def measure(self, ids_SL: Tensor) -> dict[str, Estimate]:
        return self.measure_texts(as_sequences(ids_SL), decode_samples(self.tokenizer, ids_SL))

    def measure_texts(
        self, sequences: list[list[int]], texts: list[str], score: JudgeScore | None = None
    ) -> dict[str, Estimate]:
        """Figure and diversity of texts whose model tokens are ``sequences``.

        Args:
            sequences: the texts in model tokens.
            texts: what is measured.
            score: the judge's, where it has heard them already.
        """
        judged = self.judge.token_ids(texts, self.length) if self.judge else None
        found = diversity(sequences, texts, judged, self.self_bleu_subset)
        found["entropy_ceiling"] = Estimate(math.log(self.length), 0.0, len(texts))
        figure = score.estimate() if score else self.figure_of_texts(texts)
        if figure is not None and self.metric is not None:
            found[self.metric] = figure
        return found


@dataclass
class AgreeTextQuality:
    """Valid fraction, entropy of (topic, numbers) among the valid, and diversity."""

    tokenizer: Any
    length: int
    self_bleu_subset: int = 100
    higher_is_better: bool = True
    judge: Judge | None = None

    @property
    def metric(self) -> str | None:
        return VALID

    def figure(self, ids_SL: Tensor) -> Estimate | None:
        return mean_and_error(agreetext.valid(ids_SL).double().numpy())

    def measure(self, ids_SL: Tensor) -> dict[str, Estimate]:
        texts = decode_samples(self.tokenizer, ids_SL)
        found = diversity(as_sequences(ids_SL), texts, None, self.self_bleu_subset)
        found["entropy_ceiling"] = Estimate(math.log(self.length), 0.0, len(texts))
        figure = self.figure(ids_SL)
        assert figure is not None
        found[VALID] = figure
        spread = agreetext.configuration_entropy(ids_SL)
        if spread.rows:
            found["configuration_entropy"] = Estimate(spread.plug_in, None, spread.rows)
            found["configuration_entropy_of_as_many_perfect"] = Estimate(
                spread.expected, None, spread.rows
            )
        return found


def quality_for(
    config: Any,
    tokenizer: Any,
    judge: str | None,
    device: str = "cpu",
    self_bleu_subset: int = 100,
    batch_size: int = 8,
) -> Quality:
    """What judges samples of a run's corpus.

    Args:
        config: the run's settings.
        tokenizer: the model's.
        judge: name or folder of a causal language model, ``smollm2``, or None.
        device: of the judge.
        self_bleu_subset: texts that enter self-BLEU.
        batch_size: of the judge.

    Raises:
        UserError: a judge for AgreeText, whose grammar says what is right, or no sacrebleu.
    """
    length = int(config.model.length)
    if self_bleu_subset and importlib.util.find_spec("sacrebleu") is None:
        raise UserError("self-BLEU needs sacrebleu: pip install 'lkf-plugin[eval]', or take 0.")
    if config.data.kind == "agreetext":
        if judge:
            raise UserError("AgreeText is judged by its grammar: leave the judge out.")
        return AgreeTextQuality(tokenizer, length, self_bleu_subset)
    model = open_judge(judge, device) if judge else None
    return TextQuality(tokenizer, model, length, batch_size, self_bleu_subset)


@functools.cache
def open_judge(name: str, device: str) -> Judge:
    """A judge is loaded once a process."""
    return Judge(name, device=device)

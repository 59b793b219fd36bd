"""How good samples are: a judge's perplexity on text, or what a corpus's own rule says.

Shape legend: S samples, L positions.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from lkf_plugin.data.corpus import CORPORA, VALID, SampleRule
from lkf_plugin.errors import UserError
from lkf_plugin.evaluate.diversity import as_sequences, diversity
from lkf_plugin.evaluate.identity import judge_of
from lkf_plugin.judge.judge import Judge, JudgeScore, decode_samples
from lkf_plugin.processes import ALONE, Processes
from lkf_plugin.records.estimate import Estimate, mean_and_error


class Quality(Protocol):
    """One figure that says how good a set of samples is, with its diversity beside.

    Attributes:
        metric: name of the figure; None where nothing judges.
        higher_is_better: the figure's direction.
        judge: who gave it.
        self_bleu_subset: texts that enter self-BLEU.
    """

    higher_is_better: bool
    judge: Judge | None
    self_bleu_subset: int

    @property
    def judged_by(self) -> dict[str, Any]:
        """The judge as records hold it."""

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
        processes: that share the judge's work.
    """

    tokenizer: Any
    judge: Judge | None
    length: int
    batch_size: int = 8
    self_bleu_subset: int = 100
    processes: Processes = ALONE
    higher_is_better: bool = False

    @property
    def metric(self) -> str | None:
        return self.judge.metric if self.judge else None

    @property
    def judged_by(self) -> dict[str, Any]:
        return judge_of(self.judge, self.batch_size)

    def figure(self, ids_SL: Tensor) -> Estimate | None:
        return self.figure_of_texts(decode_samples(self.tokenizer, ids_SL))

    def figure_of_texts(self, texts: list[str]) -> Estimate | None:
        """The judge's perplexity of texts."""
        if self.judge is None:
            return None
        score = self.judge.score(texts, self.length, self.batch_size, processes=self.processes)
        return score.estimate()

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
        estimates = diversity(sequences, texts, judged, self.self_bleu_subset)
        estimates["entropy_ceiling"] = Estimate(math.log(self.length), 0.0, len(texts))
        figure = score.estimate() if score else self.figure_of_texts(texts)
        if figure is not None and self.metric is not None:
            estimates[self.metric] = figure
        return estimates


@dataclass
class RuleQuality:
    """The share that the corpus's own rule calls right, and diversity.

    Args:
        tokenizer: the model's.
        length: L of the model.
        rule: of the corpus.
        self_bleu_subset: texts that enter self-BLEU; 0 leaves it out.
    """

    tokenizer: Any
    length: int
    rule: SampleRule
    self_bleu_subset: int = 100
    higher_is_better: bool = True
    judge: Judge | None = None

    @property
    def metric(self) -> str | None:
        return VALID

    @property
    def judged_by(self) -> dict[str, Any]:
        return judge_of(None)

    def figure(self, ids_SL: Tensor) -> Estimate | None:
        return self._share(ids_SL)

    def measure(self, ids_SL: Tensor) -> dict[str, Estimate]:
        texts = decode_samples(self.tokenizer, ids_SL)
        estimates = diversity(as_sequences(ids_SL), texts, None, self.self_bleu_subset)
        estimates["entropy_ceiling"] = Estimate(math.log(self.length), 0.0, len(texts))
        estimates[VALID] = self._share(ids_SL)
        return {**estimates, **self.rule.beside(ids_SL)}

    def _share(self, ids_SL: Tensor) -> Estimate:
        return mean_and_error(self.rule.valid(ids_SL).double().numpy())


def quality_for(
    config: Any,
    tokenizer: Any,
    judge: str | None,
    device: str = "cpu",
    self_bleu_subset: int = 100,
    batch_size: int = 8,
    processes: Processes = ALONE,
) -> Quality:
    """What judges samples of a run's corpus.

    Args:
        config: the run's settings.
        tokenizer: the model's.
        judge: name or folder of a causal language model, ``smollm2``, or None.
        device: of the judge.
        self_bleu_subset: texts that enter self-BLEU.
        batch_size: of the judge.
        processes: that share the judge's work.

    Raises:
        UserError: a judge for a corpus whose own rule says what is right, or no sacrebleu.
    """
    length = int(config.model.length)
    if self_bleu_subset and importlib.util.find_spec("sacrebleu") is None:
        raise UserError("self-BLEU needs sacrebleu: pip install 'lkf-plugin[eval]', or take 0.")
    rule = CORPORA[config.data.kind].rule
    if rule is not None:
        if judge:
            raise UserError(
                f"data.kind={config.data.kind} is judged by its grammar: leave the judge out."
            )
        return RuleQuality(tokenizer, length, rule, self_bleu_subset)
    model = open_judge(judge, device) if judge else None
    return TextQuality(tokenizer, model, length, batch_size, self_bleu_subset, processes=processes)


@functools.cache
def open_judge(name: str, device: str) -> Judge:
    """A judge is loaded once per process."""
    return Judge(name, device=device)

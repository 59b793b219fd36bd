"""How varied samples are: entropies, distinct n-grams, self-BLEU and character shares.

A generative perplexity means little without these: a sampler that repeats itself scores well.
Entropies are in nats. Errors of means are deviations over root n; those of pooled statistics come
from a jackknife over groups of samples.

Shapes: S samples, L positions, N tokens or n-grams of all samples, G jackknife groups.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence

import numpy as np
import torch

from lkf_plugin.errors import UserError
from lkf_plugin.records.estimate import (
    Estimate,
    jackknife_error,
    jackknife_groups,
    mean_and_error,
)

Sequences = Sequence[Sequence[int]]


def as_sequences(ids_BL: torch.Tensor, mask_BL: torch.Tensor | None = None) -> list[list[int]]:
    """Rows of a token tensor as lists, without the positions where the mask is 0 (padding)."""
    if mask_BL is None:
        return ids_BL.tolist()
    pairs = zip(ids_BL.tolist(), mask_BL.bool().tolist(), strict=True)
    return [[token for token, keep in zip(*row, strict=True) if keep] for row in pairs]


def sequence_entropy(sequences: Sequences) -> Estimate:
    """Mean over samples of the entropy of a sample's own token frequencies, nats.

    A sample of L tokens reaches ln L at most, when no token repeats. Empty samples are left out.

    Raises:
        UserError: if every sample is empty.
    """
    entropies = [
        _entropy(np.unique(np.asarray(one), return_counts=True)[1]) for one in sequences if len(one)
    ]
    if not entropies:
        raise UserError("entropy needs at least one sample that is not empty")
    return mean_and_error(entropies)


def pooled_entropy(sequences: Sequences) -> Estimate:
    """Entropy of the token frequencies of all samples together, nats.

    Unlike ``sequence_entropy`` it falls when samples resemble each other.

    Raises:
        UserError: if every sample is empty.
    """

    def statistic(counts_GV: np.ndarray) -> float:
        return _entropy(counts_GV.sum(0))

    return _pooled(sequences, 1, statistic, "pooled entropy")


def distinct_n(sequences: Sequences, n: int) -> Estimate:
    """Share of different n-grams among all n-grams of all samples together, 0 to 1.

    It falls as more samples are pooled: compare only equal numbers of samples of equal length.

    Raises:
        UserError: if no sample has n tokens.
    """

    def statistic(counts_GV: np.ndarray) -> float:
        counts_V = counts_GV.sum(0)
        return float((counts_V > 0).sum() / counts_V.sum())

    return _pooled(sequences, n, statistic, f"distinct-{n}")


def self_bleu(texts: Sequence[str], subset: int = 100, seed: int = 0) -> Estimate:
    """Mean BLEU-4 of a sample against the others as references, 0 (unlike) to 100 (alike).

    Sentence BLEU of sacrebleu (tokenizer 13a, exponential smoothing, effective order) on a seeded
    subset: each of its texts is once the hypothesis, all others the references. It grows with the
    subset's size; compare equal sizes only.

    Args:
        texts: S texts.
        subset: how many of them are drawn, without replacement.
        seed: of the draw.

    Raises:
        UserError: if sacrebleu is missing or there are fewer than two texts.
    """
    try:
        from sacrebleu.metrics import BLEU
    except ImportError as error:
        raise UserError("self-BLEU needs sacrebleu: pip install 'lkf-plugin[eval]'") from error
    if min(len(texts), subset) < 2:
        raise UserError("self-BLEU needs at least two texts")
    drawn = np.random.default_rng(seed).permutation(len(texts))[:subset]
    chosen = [texts[index] for index in sorted(drawn.tolist())]
    bleu = BLEU(effective_order=True, tokenize="13a", smooth_method="exp")
    return mean_and_error(
        [
            bleu.sentence_score(text, chosen[:index] + chosen[index + 1 :]).score
            for index, text in enumerate(chosen)
        ]
    )


def digit_share(texts: Sequence[str]) -> Estimate:
    """Mean share of decimal digits among a text's characters; empty texts are left out."""
    return _character_share(texts, str.isdecimal, "digit share")


def punctuation_share(texts: Sequence[str]) -> Estimate:
    """Mean share of punctuation (Unicode P*) and symbols (S*) among a text's characters."""
    return _character_share(
        texts, lambda character: unicodedata.category(character)[0] in "PS", "punctuation share"
    )


def diversity(
    sequences: Sequences,
    texts: Sequence[str],
    judge_sequences: Sequences | None = None,
    self_bleu_subset: int = 100,
    seed: int = 0,
) -> dict[str, Estimate]:
    """All of the above for one set of samples.

    Args:
        sequences: S samples in the model's tokens (``as_sequences``).
        texts: the same samples as text.
        judge_sequences: the same in the judge's tokens (``Judge.token_ids``), which makes
            entropies comparable between models of different tokenizers.
        self_bleu_subset: texts that enter self-BLEU; 0 leaves it out.
        seed: of the self-BLEU subset.

    Returns:
        Estimates by name: ``entropy``, ``pooled_entropy``, ``distinct_1``, ``distinct_2``,
        ``digit_share``, ``punctuation_share``, with a subset ``self_bleu``, and with judge tokens
        ``judge_entropy``, ``judge_pooled_entropy``, ``judge_distinct_2``.

    Raises:
        UserError: as the single functions do.
    """
    estimates = {
        "entropy": sequence_entropy(sequences),
        "pooled_entropy": pooled_entropy(sequences),
        "distinct_1": distinct_n(sequences, 1),
        "distinct_2": distinct_n(sequences, 2),
        "digit_share": digit_share(texts),
        "punctuation_share": punctuation_share(texts),
    }
    if self_bleu_subset:
        estimates["self_bleu"] = self_bleu(texts, self_bleu_subset, seed)
    if judge_sequences is not None:
        estimates["judge_entropy"] = sequence_entropy(judge_sequences)
        estimates["judge_pooled_entropy"] = pooled_entropy(judge_sequences)
        estimates["judge_distinct_2"] = distinct_n(judge_sequences, 2)
    return estimates


def _entropy(counts_V: np.ndarray) -> float:
    """Entropy of counts in nats; zero counts add nothing."""
    share = counts_V[counts_V > 0] / counts_V.sum()
    return float(max(-(share * np.log(share)).sum(), 0.0))


def _pooled(
    sequences: Sequences, n: int, statistic: Callable[[np.ndarray], float], name: str
) -> Estimate:
    """A statistic of all n-gram counts together, with its error by leaving groups out.

    ``statistic`` takes counts by group and kind of n-gram, shape (G, kinds).
    """
    kept = [one for one in sequences if len(one) >= n]
    if not kept:
        raise UserError(f"{name} needs at least one sample of {n} tokens or more")
    kind_N = _ngram_kinds(kept, n)
    lengths = [len(one) - n + 1 for one in kept]
    group_N = np.repeat(jackknife_groups(len(kept)), lengths)
    groups, kinds = int(group_N[-1]) + 1, int(kind_N.max()) + 1
    flat = np.bincount(group_N * kinds + kind_N, minlength=groups * kinds)
    counts_GV = flat.reshape(groups, kinds)
    total_V = counts_GV.sum(0)
    error = None
    if groups > 1:
        error = jackknife_error([statistic((total_V - one)[None]) for one in counts_GV])
    return Estimate(statistic(counts_GV), error, len(kept))


def _ngram_kinds(sequences: Sequences, n: int) -> np.ndarray:
    """For every n-gram of every sequence the number of its kind, shape (N,), int64."""
    columns = [
        np.concatenate([np.asarray(one[at : len(one) - n + 1 + at]) for one in sequences])
        for at in range(n)
    ]
    kind_N = np.unique(columns[0], return_inverse=True)[1].astype(np.int64)
    for column in columns[1:]:
        _, token_N = np.unique(column, return_inverse=True)
        kind_N = kind_N * (int(token_N.max()) + 1) + token_N
        # Numbered anew after each column, so that the product cannot overflow.
        kind_N = np.unique(kind_N, return_inverse=True)[1].astype(np.int64)
    return kind_N


def _character_share(texts: Sequence[str], counts: Callable[[str], bool], name: str) -> Estimate:
    """Mean over the non-empty texts of the share of characters that count."""
    shares = [sum(map(counts, text)) / len(text) for text in texts if text]
    if not shares:
        raise UserError(f"{name} needs at least one text that is not empty")
    return mean_and_error(shares)

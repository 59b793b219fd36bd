"""The two ends of a scale: held-out text, and the same text with its words shuffled.

A perplexity or a valid fraction means little without them.
"""

from __future__ import annotations

import torch

from lkf_plugin.evaluate.diversity import as_sequences
from lkf_plugin.evaluate.quality import Quality, RuleQuality, TextQuality
from lkf_plugin.judge.judge import decode_samples
from lkf_plugin.records.estimate import Estimate
from lkf_plugin.runs.load import LoadedRun


def real_text(run: LoadedRun, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and mask of ``count`` held-out sequences, spread evenly over the split, [n, L]."""
    rows = run.prepared.valid
    assert rows is not None
    count = min(count, len(rows))
    chosen = [i * len(rows) // count for i in range(count)]
    picked = rows[chosen]
    return torch.as_tensor(picked["input_ids"]), torch.as_tensor(picked["attention_mask"])


def shuffled_words(texts: list[str], seed: int) -> list[str]:
    """Each text's words in a random order."""
    generator = torch.Generator().manual_seed(seed)
    shuffled = []
    for text in texts:
        words = text.split()
        order = torch.randperm(len(words), generator=generator).tolist()
        shuffled.append(" ".join(words[i] for i in order))
    return shuffled


def both_ends(
    run: LoadedRun, quality: Quality, count: int, seed: int
) -> dict[str, dict[str, Estimate]]:
    """``real`` and ``shuffled`` -> what quality measures of them."""
    ids_SL, mask_SL = real_text(run, count)
    if isinstance(quality, RuleQuality):
        order = torch.Generator().manual_seed(seed)
        mixed = [row[torch.randperm(len(row), generator=order)] for row in ids_SL]
        return {
            "real": quality.measure(ids_SL),
            "shuffled": quality.measure(torch.stack(mixed)),
        }
    assert isinstance(quality, TextQuality)
    texts = decode_samples(run.prepared.tokenizer, ids_SL)
    words = shuffled_words(texts, seed)
    tokens = [run.prepared.tokenizer.encode(text, add_special_tokens=False) for text in words]
    return {
        "real": quality.measure_texts(as_sequences(ids_SL, mask_SL), texts),
        "shuffled": quality.measure_texts(tokens, words),
    }

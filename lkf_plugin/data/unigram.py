"""What a model without context gets on the held-out tokens, and how long their text is.

Shapes: N sequences, L positions, V entries.
"""

from __future__ import annotations

import numpy as np
from transformers import PreTrainedTokenizerBase

from lkf_plugin.data.layout import Block


def unigram_nats(train: Block, held_out: Block, vocab_size: int) -> float:
    """Cross-entropy of the held-out tokens under the training unigram, nats per token.

    Each of the V entries is counted once more than it occurs, so that none is impossible. A
    position at which every training sequence has one and the same token (BOS and EOS of packed
    sequences) costs nothing, because knowing it needs no context; it is counted as a token all the
    same, as ``val/nll`` does.

    Args:
        train: Ids and mask [N, L] of the training sequences.
        held_out: The same of the held-out ones.
        vocab_size: V.
    """
    ids_NL, mask_NL = train
    fixed_L = np.all(ids_NL == ids_NL[:1], axis=0) & np.all(mask_NL == 1, axis=0)
    counts_V = np.ones(vocab_size)
    for start in range(0, len(ids_NL), 4096):
        rows, mask = ids_NL[start : start + 4096, ~fixed_L], mask_NL[start : start + 4096, ~fixed_L]
        counts_V += np.bincount(rows[mask == 1].astype(np.int64), minlength=vocab_size)
    nats_V = np.log(counts_V.sum()) - np.log(counts_V)
    ids_NL, mask_NL = held_out
    free_NL = (mask_NL == 1) & ~fixed_L
    return float(nats_V[ids_NL[free_NL]].sum() / (mask_NL == 1).sum())


def text_size(held_out: Block, tokenizer: PreTrainedTokenizerBase) -> tuple[int, int]:
    """Characters and UTF-8 bytes of the text that sequences hold, special tokens aside."""
    ids_NL, mask_NL = held_out
    # One stream: a character may be cut in two between sequences that follow each other.
    text = str(tokenizer.decode(ids_NL[mask_NL == 1].tolist(), skip_special_tokens=True))
    return len(text), len(text.encode("utf-8"))

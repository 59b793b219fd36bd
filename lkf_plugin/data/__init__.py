"""Corpora, tokenizers and loaders: ``prepare(config)`` gives everything a run needs of them."""

from __future__ import annotations

from lkf_plugin.data.loader import StepOrder, TokenBatches, train_loader, valid_loader
from lkf_plugin.data.prepare import PreparedData, prepare
from lkf_plugin.data.tokenizer import TokenIds, load_tokenizer, token_ids

__all__ = [
    "PreparedData",
    "StepOrder",
    "TokenBatches",
    "TokenIds",
    "load_tokenizer",
    "prepare",
    "token_ids",
    "train_loader",
    "valid_loader",
]

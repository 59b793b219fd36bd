"""Moving the mask's row: other trainers append their mask, tokenizers such as BERT's have one.

Shape legend: S rows of the source's vocabulary, V rows of ours.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lkf_plugin.errors import UserError

ROW_NAMES = ("vocab_embed.embedding", "output_layer.linear.weight", "output_layer.linear.bias")


def row_order(source_size: int, source_mask: int, target_size: int, target_mask: int) -> list[int]:
    """Row of the source that each of our V rows takes.

    * equal sizes: the mask's row moves, all other tokens keep their order
    * one row more in the source: it has a mask beside the tokenizer's own, whose row, that of an
      ordinary token that no text holds, gives way

    Raises:
        UserError: other sizes, or ids outside the vocabulary.
    """
    if not 0 <= source_mask < source_size or not 0 <= target_mask < target_size:
        raise UserError(
            f"mask ids {source_mask} of {source_size} and {target_mask} of {target_size} rows: a "
            "mask must be a row of its vocabulary"
        )
    tokens = [row for row in range(source_size) if row != source_mask]
    if source_size == target_size:
        return [*tokens[:target_mask], source_mask, *tokens[target_mask:]]
    if source_size == target_size + 1:
        return [*tokens[:target_mask], source_mask, *tokens[target_mask + 1 :]]
    raise UserError(
        f"the checkpoint has {source_size} rows and the tokenizer {target_size}, mask included: "
        "they were not made for the same vocabulary"
    )


def take_rows(name: str, tensor: Tensor, order: list[int]) -> Tensor:
    """A weight in our order of rows, if it has a row a token."""
    if name not in ROW_NAMES:
        return tensor
    return tensor[torch.tensor(order)].clone()

"""How strongly a sample's words agree: the total correlation of AgreeText's features.

All that ties words together in AgreeText are the topic and the clauses' numbers. So the total
correlation of a sample is measured on what its words show of them, a few values a position, where
few samples suffice: along the chain of the topic's carriers, and along those of each clause's
number. On the corpus itself that is all of its total correlation; of any other law it is a lower
bound, since chains leave out what is not between neighbours.

Shape legend: S samples, L = 8C positions, F carriers of a feature. Unit: nats.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lkf_plugin.corpora.agreetext_grammar import CLAUSE_LENGTH, SLOTS, carriers


def shown(x_SL: Tensor, feature: str) -> Tensor:
    """Value of ``topic`` or ``number`` that each carrier shows, [S, C, F]; -1 where it fits not."""
    columns = []
    x_SCP = x_SL.unflatten(1, (-1, CLAUSE_LENGTH))
    for place in carriers(feature):
        slot = SLOTS[place]
        word_SC = x_SCP[..., place] - slot.offset
        fits_SC = (word_SC >= 0) & (word_SC < slot.size)
        columns.append(torch.where(fits_SC, word_SC.div(slot.lexemes, rounding_mode="floor"), -1))
    return torch.stack(columns, dim=-1)


def chains(x_SL: Tensor) -> list[Tensor]:
    """The chains of carriers, each [S, F] of values from 0: the topic, and each clause's number."""
    topic_SF = shown(x_SL, "topic").flatten(1)
    return [topic_SF + 1, *(number_SF + 1 for number_SF in shown(x_SL, "number").unbind(1))]

"""Which (sequence, component) pairs a branch pass must run, and what is read of each.

A latent per block gives every position a component of its own. The branch runs one component per
row, so that a sequence is run once for every component that any of its positions asks for; the head
then sees only the positions that asked.

Shape legend: B sequences, G groups, M components, L positions, N places (row, position), R pairs,
Q places of pairs.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class DistinctPairs(NamedTuple):
    """Pairs without repetition, in the order of row * M + component.

    Attributes:
        row_R, component_R: the pairs.
        pair_N: the pair of each request.
    """

    row_R: Tensor
    component_R: Tensor
    pair_N: Tensor


def distinct_pairs(row_N: Tensor, component_N: Tensor, num_components: int) -> DistinctPairs:
    """Pairs that any of the requests is for (sampling: a component per revealed position)."""
    key_R, pair_N = torch.unique(row_N * num_components + component_N, return_inverse=True)
    return DistinctPairs(key_R // num_components, key_R % num_components, pair_N)


class WeightedPairs(NamedTuple):
    """Pairs with weight, and the places at which they have it.

    Attributes:
        row_R, component_R: the pairs, in the order of row * M + component.
        pair_Q, position_Q: places in pairs, pair after pair, positions in the order given.
        source_Q: index into the N places that were given.
        weight_Q: the weight there, not zero.
    """

    row_R: Tensor
    component_R: Tensor
    pair_Q: Tensor
    position_Q: Tensor
    source_Q: Tensor
    weight_Q: Tensor


def weighted_pairs(
    weight_BGM: Tensor, group_L: Tensor, row_N: Tensor, position_N: Tensor
) -> WeightedPairs:
    """Pairs with any weight at the counted places (training: the second phase).

    Args:
        weight_BGM: weight of each component in each group; zero needs no pass.
        group_L: group of each position.
        row_N, position_N: the counted places, sequence after sequence.
    """
    if weight_BGM.shape[1] == 1:
        return _pairs_of_sequences(weight_BGM[:, 0], row_N, position_N)
    M = weight_BGM.shape[-1]
    weight_NM = weight_BGM[row_N, group_L[position_N]]
    source_Q, component_Q = weight_NM.nonzero(as_tuple=True)  # host and device meet here
    order_Q = torch.argsort(row_N[source_Q] * M + component_Q, stable=True)
    source_Q, component_Q = source_Q[order_Q], component_Q[order_Q]
    pairs = distinct_pairs(row_N[source_Q], component_Q, M)  # and here
    return WeightedPairs(
        pairs.row_R,
        pairs.component_R,
        pairs.pair_N,
        position_N[source_Q],
        source_Q,
        weight_NM[source_Q, component_Q],
    )


def weighted_places(
    weight_BGM: Tensor, group_L: Tensor, row_N: Tensor, position_N: Tensor
) -> WeightedPairs:
    """The same where a place costs what it costs, whatever else its pair is asked for.

    All pairs are given, with or without places, and places in the order of the counted ones: there
    is nothing to sort, and host and device meet once.
    """
    batch, _, M = weight_BGM.shape
    device = weight_BGM.device
    group_N = 0 if weight_BGM.shape[1] == 1 else group_L[position_N]
    weight_NM = weight_BGM[row_N, group_N]
    source_Q, component_Q = weight_NM.nonzero(as_tuple=True)
    return WeightedPairs(
        torch.arange(batch, device=device).repeat_interleave(M),
        torch.arange(M, device=device).repeat(batch),
        row_N[source_Q] * M + component_Q,
        position_N[source_Q],
        source_Q,
        weight_NM[source_Q, component_Q],
    )


def _pairs_of_sequences(weight_BM: Tensor, row_N: Tensor, position_N: Tensor) -> WeightedPairs:
    """The same where all positions of a sequence weigh alike: nothing is sorted or looked up.

    A sequence without counted places keeps its pairs, which then have none.
    """
    batch, M = weight_BM.shape
    device = weight_BM.device
    count_B = torch.bincount(row_N, minlength=batch)
    first_B = count_B.cumsum(0) - count_B
    kept_BM = weight_BM > 0
    sizes = torch.stack((kept_BM.sum(), (kept_BM.sum(-1) * count_B).sum()))
    pairs, places = sizes.tolist()  # host and device meet here
    order = torch.argsort((~kept_BM).flatten().to(torch.uint8), stable=True)
    pair_R = order[:pairs]
    row_R, component_R = pair_R // M, pair_R % M
    count_R = count_B[row_R]
    pair_Q = torch.repeat_interleave(
        torch.arange(pairs, device=device), count_R, output_size=places
    )
    place_in_pair_Q = torch.arange(places, device=device) - (count_R.cumsum(0) - count_R)[pair_Q]
    source_Q = first_B[row_R][pair_Q] + place_in_pair_Q
    weight_R = weight_BM[row_R, component_R]
    return WeightedPairs(
        row_R, component_R, pair_Q, position_N[source_Q], source_Q, weight_R[pair_Q]
    )

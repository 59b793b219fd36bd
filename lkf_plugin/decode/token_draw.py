"""Tokens from logits that come in tiles of the vocabulary: draws in float64, and the likeliest.

The head is widest where sampling is, so its logits are summed up tile by tile while they are in the
processor's cache; only the tile that a draw falls into is looked at again.

Shape legend: N rows, V vocabulary, C columns of a tile, T tiles.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor


def draw_token(
    tiles: Iterable[Tensor], u_N: Tensor, temperature: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Inverse-CDF draws in float64, one uniform per token: the law is exact to 2^-53.

    Args:
        tiles: logits [N, C] of consecutive columns, all of one width but the last.
        u_N: uniforms in [0, 1), float64.
        temperature: of the draw.

    Returns:
        (tokens [N], their log-probabilities at temperature 1 [N], float64 nats).
    """
    kept, masses, plain = [], [], []
    for logits_NC in tiles:
        kept.append(logits_NC)
        masses.append(_mass(logits_NC, temperature))
        if temperature != 1.0:
            plain.append(_mass(logits_NC))
    top_N, mass_NT = _shares(masses)
    cdf_NT = mass_NT.cumsum(-1)
    wanted_N1 = u_N[:, None] * cdf_NT[:, -1:]
    tile_N1 = _first_above(cdf_NT, wanted_N1)
    wanted_N1 = wanted_N1 - (cdf_NT - mass_NT).gather(-1, tile_N1)
    own_NC = _pick(kept, tile_N1)
    cdf_NC = (own_NC.double() / temperature - top_N[:, None]).exp_().cumsum(-1)
    inside_N1 = _first_above(cdf_NC, wanted_N1)
    logit_N = own_NC.gather(-1, inside_N1).squeeze(-1).double()
    token_N = (tile_N1 * kept[0].shape[-1] + inside_N1).squeeze(-1)
    return token_N, logit_N - _logsumexp(plain or masses)


def take_likeliest(tiles: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """(token of the largest logit, the first of equal ones; its log-probability), each [N].

    Args:
        tiles: as for ``draw_token``.
    """
    best, masses, start = [], [], 0
    for logits_NC in tiles:
        top_N, at_N = logits_NC.max(-1)
        best.append((top_N, start + at_N))
        masses.append(_mass(logits_NC))
        start += logits_NC.shape[-1]
    top_NT, token_NT = (torch.stack(part, -1) for part in zip(*best, strict=True))
    top_N, tile_N = top_NT.max(-1)
    token_N = token_NT.gather(-1, tile_N[:, None]).squeeze(-1)
    return token_N, top_N.double() - _logsumexp(masses)


def _mass(logits_NC: Tensor, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """(largest logit over the temperature, sum of exponentials below it) of a tile, float64 [N]."""
    scaled_NC = logits_NC if temperature == 1.0 else logits_NC.double() / temperature
    top_N = scaled_NC.amax(-1).double()
    return top_N, (scaled_NC - top_N[:, None]).exp_().sum(-1)  # the difference is float64


def _shares(masses: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """(largest logit [N], sum of exponentials below that one in each tile [N, T])."""
    top_NT, sum_NT = (torch.stack(part, -1) for part in zip(*masses, strict=True))
    top_N = top_NT.amax(-1)
    return top_N, sum_NT * (top_NT - top_N[:, None]).exp()


def _logsumexp(masses: list[tuple[Tensor, Tensor]]) -> Tensor:
    top_N, mass_NT = _shares(masses)
    return top_N + mass_NT.sum(-1).log()


def _first_above(cdf: Tensor, wanted: Tensor) -> Tensor:
    """Where a CDF first exceeds what is wanted, at the latest where its last mass is."""
    last = torch.searchsorted(cdf, cdf[:, -1:].contiguous())
    return torch.minimum(torch.searchsorted(cdf, wanted, right=True), last)


def _pick(tiles: list[Tensor], tile_N1: Tensor) -> Tensor:
    """Each row's own tile, [N, C]; what a narrower last one lacks has no mass."""
    if len(tiles) == 1:
        return tiles[0]
    lacking = tiles[0].shape[-1] - tiles[-1].shape[-1]
    tiles = [*tiles[:-1], F.pad(tiles[-1], (0, lacking), value=-torch.inf)]
    return torch.stack([tiles[t][n] for n, t in enumerate(tile_N1.squeeze(-1).tolist())])

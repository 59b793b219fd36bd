"""Every structure by brute force: all latents, all strings, nothing but sums of products."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor

from lkf_plugin.information.product_mixture import all_strings
from lkf_plugin.latents.chain import Chain, ChainPotentials
from lkf_plugin.latents.sequence import Sequence, SequencePotentials
from lkf_plugin.latents.structure import Structure
from lkf_plugin.latents.tree import Tree, TreePotentials

V, L = 3, 4

CASES: dict[str, Structure[Any]] = {
    "sequence": Sequence(3),
    "tree, two blocks": Tree(2, 3, 2),
    "tree, four blocks": Tree(2, 2, 1),
    "tree, ragged blocks": Tree(2, 2, 3),
    "independent blocks": Tree(1, 3, 2),
    "chain, two blocks": Chain(1, 3, 2),
    "chain, positions": Chain(1, 3, 1),
    "chains, positions": Chain(2, 2, 1),
    "chains, ragged blocks": Chain(2, 3, 3),
}


def log_normal(*shape: int, generator: torch.Generator) -> Tensor:
    logits = 1.5 * torch.randn(shape, generator=generator, dtype=torch.float64)
    return torch.log_softmax(logits, dim=-1)


def random_potentials(structure: Structure[Any], batch: int, seed: int = 0) -> Any:
    g = torch.Generator().manual_seed(seed)
    K, m, G = structure.sequence_components, structure.block_components, structure.blocks.count(L)
    logw = log_normal(batch, K, generator=g)
    if isinstance(structure, Sequence):
        return SequencePotentials(logw)
    if isinstance(structure, Tree):
        return TreePotentials(logw, log_normal(batch, G, K, m, generator=g))
    assert isinstance(structure, Chain)
    return ChainPotentials(
        logw,
        log_normal(batch, K, m, generator=g),
        log_normal(batch, K, G - 1, m, m, generator=g),
    )


def random_components(structure: Structure[Any], batch: int, seed: int = 1) -> Tensor:
    """log P_i^k, [B, M, L, V]."""
    g = torch.Generator().manual_seed(seed)
    return log_normal(batch, structure.components, L, V, generator=g)


def all_latents(structure: Structure[Any]) -> Tensor:
    """Every z, [Z, G]; impossible ones (blocks under different k) included."""
    groups = structure.blocks.count(L)
    return torch.tensor(list(itertools.product(range(structure.components), repeat=groups)))


def log_prior(structure: Structure[Any], p: Any, z_ZG: Tensor) -> Tensor:
    """log pi(z), [B, Z], from the definition."""
    m = structure.block_components
    k_ZG, j_ZG = z_ZG // m, z_ZG % m
    total = p.logw_BK[:, k_ZG[:, 0]]
    groups = z_ZG.shape[1]
    if isinstance(p, TreePotentials):
        for g in range(groups):
            total = total + p.logv_BGKm[:, g, k_ZG[:, 0], j_ZG[:, g]]
    if isinstance(p, ChainPotentials):
        total = total + p.loga_BKm[:, k_ZG[:, 0], j_ZG[:, 0]]
        for g in range(1, groups):
            move = p.logT_BKHmm[:, k_ZG[:, 0], g - 1, j_ZG[:, g - 1], j_ZG[:, g]]
            total = total + move
    return total.masked_fill((k_ZG != k_ZG[:, :1]).any(-1), -torch.inf)


def token_scores(logp_BMLV: Tensor, x_XL: Tensor) -> Tensor:
    """log P_i^k(x_i) of every string, [B, X, M, L]."""
    index = x_XL[None, :, None, :, None].expand(*logp_BMLV.shape[:1], -1, logp_BMLV.shape[1], -1, 1)
    rows = logp_BMLV[:, None].expand(-1, len(x_XL), -1, -1, -1)
    return rows.gather(-1, index).squeeze(-1)


def log_joint(structure: Structure[Any], p: Any, logp_ML: Tensor, z_ZG: Tensor) -> Tensor:
    """log pi(z) + sum_i log P_i^{z_g(i)}(x_i) of one batch row, [Z]."""
    group_L = structure.blocks.group_of(L)
    component_ZL = z_ZG[:, group_L]
    ell_Z = logp_ML.T[torch.arange(L), component_ZL].sum(-1)
    return log_prior(structure, p, z_ZG)[0] + ell_Z


def row(p: Any, b: int) -> Any:
    """One batch row of potentials, as a batch of one."""
    return p._make(part[b : b + 1] for part in p)


STRINGS = all_strings(L, V)

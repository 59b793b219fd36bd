"""The diffusion baselines' denoiser: MDLM's transformer, or the native trunk without a latent.

SEDD's network and DUO's are MDLM's, name for name. ``model.trunk=native`` has learned positions,
which generated corpora need: with rotary positions alone, all masks of a text look the same.

Shape legend: B sequences, L positions, N rows = (sequence, position) pairs, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from lkf_plugin.backbone import MatchedTrunk, NativeTrunk
from lkf_plugin.backbone.short_start import start_short
from lkf_plugin.backbone.trunk import TrunkState
from lkf_plugin.methods.duo_latent import SoftTokens


class NativeDenoiser(NativeTrunk):
    """The native trunk, asked like MDLM's network."""

    def forward(self, x_BL: Tensor, sigma_B: Tensor) -> Tensor:
        """Logits [B, L, V] at noise ``sigma_B``."""
        state = encode(self, x_BL, sigma_B)
        return self.output_logits(state.h_BLD, state.act_BC)


Denoiser = MatchedTrunk | NativeDenoiser


def build_denoiser(model: Mapping[str, Any], vocab_size: int) -> Denoiser:
    """The network that a ``model`` config of type ``ddit`` describes."""
    shape: dict[str, Any] = {
        key: model[key] for key in ("hidden_size", "cond_dim", "n_blocks", "n_heads", "dropout")
    }
    shape["activation_checkpointing"] = model.get("activation_checkpointing", False)
    network: Denoiser
    if model.get("trunk", "matched") == "native":
        network = NativeDenoiser(vocab_size, model["length"], **shape)
    else:
        network = MatchedTrunk(vocab_size, **shape)
    start_short(network, model)
    return network


def encode(network: Denoiser, x_BL: Tensor, sigma_B: Tensor) -> TrunkState:
    """Everything below the head."""
    return _run(network, network.embed(x_BL, sigma_B))


def encode_soft(
    network: Denoiser, soft: SoftTokens, shape: tuple[int, int], sigma_B: Tensor
) -> TrunkState:
    """The same for mixtures of embeddings, rows (b, l) in order; ``shape`` is (B, L)."""
    state = network.embed(soft.hard_N.view(shape), sigma_B)  # for its conditioning
    if isinstance(network, NativeTrunk):
        h_BLD = mix_embeddings(soft, network.token_embed.weight).view(*shape, -1)
        h_BLD = h_BLD + network.position_embed.weight[: shape[1]]
    else:
        h_BLD = mix_embeddings(soft, network.vocab_embed.embedding).view(*shape, -1)
    return _run(network, state._replace(h_BLD=h_BLD))


def _run(network: Denoiser, state: TrunkState) -> TrunkState:
    blocks = len(network.blocks)
    return state._replace(h_BLD=network.run_blocks(state.h_BLD, state.act_BC, 0, blocks))


def mix_embeddings(soft: SoftTokens, table_VD: Tensor) -> Tensor:
    """Weighted sums of embeddings, [N, D]; no [N, columns, D] tensor is made."""
    if soft.id_NC is None:
        return soft.weight_NC.to(table_VD.dtype) @ table_VD
    weight_NC = soft.weight_NC.to(table_VD.dtype)
    return F.embedding_bag(soft.id_NC, table_VD, mode="sum", per_sample_weights=weight_NC)


def by_rows(
    function: Callable[..., Tensor],
    network: Denoiser,
    state: TrunkState,
    rows: tuple[Tensor, ...],
    columns_N: tuple[Tensor, ...],
    chunk_rows: int,
) -> Tensor:
    """``function(logits_NV, *columns_N)`` -> [N] at gathered positions, a chunk at a time.

    Chunks are computed again in the backward pass, so no more than ``chunk_rows`` rows of logits
    exist at once.

    Args:
        rows: (sequence, position) of each row.
        columns_N: tensors with one entry a row.
    """
    row_N, position_N = rows
    hidden_ND = network.output_hidden(state.h_BLD[row_N, position_N], state.act_BC, row_N)
    weight_VD, bias_V = network.head_weight, network.head_bias

    def of_chunk(hidden: Tensor, *columns: Tensor) -> Tensor:
        return function(F.linear(hidden, weight_VD, bias_V), *columns)

    total = row_N.numel()
    if total <= chunk_rows:
        return of_chunk(hidden_ND, *columns_N)
    parts = []
    for start in range(0, total, chunk_rows):
        chunk = slice(start, start + chunk_rows)
        args = (hidden_ND[chunk], *(column[chunk] for column in columns_N))
        if torch.is_grad_enabled():
            parts.append(checkpoint(of_chunk, *args, use_reentrant=False))
        else:
            parts.append(of_chunk(*args))
    return torch.cat(parts)

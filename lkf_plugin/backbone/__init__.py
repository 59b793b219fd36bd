"""Backbones: MDLM's own transformer and the latent-kernel network over two trunks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from lkf_plugin.backbone.latent import BLOCK, SHARED_BLOCKS, LatentKernelBackbone
from lkf_plugin.backbone.matched import MatchedTrunk
from lkf_plugin.backbone.native import NativeTrunk
from lkf_plugin.backbone.short_start import start_short
from lkf_plugin.backbone.trunk import Trunk
from lkf_plugin.errors import UserError
from lkf_plugin.latents.structure import build_structure

__all__ = ["LatentKernelBackbone", "MatchedTrunk", "NativeTrunk", "build_backbone"]


def build_backbone(model: Mapping[str, Any], vocab_size: int, mask_index: int) -> nn.Module:
    """The network that a ``model`` config describes.

    Args:
        model: keys of configs/model (``type`` is ``ddit``, MDLM's own network, or ``lkf``).
        vocab_size: V, the mask included.
        mask_index: id of the mask.

    Raises:
        UserError: unknown type, trunk or latent, M < 1, or more latent blocks than blocks.
    """
    shape: dict[str, Any] = {
        "vocab_size": vocab_size,
        "hidden_size": model["hidden_size"],
        "cond_dim": model["cond_dim"],
        "n_blocks": model["n_blocks"],
        "n_heads": model["n_heads"],
        "dropout": model["dropout"],
        "activation_checkpointing": model.get("activation_checkpointing", False),
    }
    if model["type"] == "ddit":
        return MatchedTrunk(**shape)
    if model["type"] != "lkf":
        raise UserError(f"model.type={model['type']} is unknown: take lkf, or ddit for MDLM's own.")
    trunk: Trunk
    if model["trunk"] == "matched":
        trunk = MatchedTrunk(**shape)
    elif model["trunk"] == "native":
        trunk = NativeTrunk(length=model["length"], **shape)
    else:
        raise UserError(f"model.trunk={model['trunk']} is unknown: take matched or native.")
    start_short(trunk, model)
    if model.get("compile_blocks", False):
        for block in trunk.blocks:
            # in place, so that the names of weights stay; any number of rows with one graph
            block.compile(dynamic=True)
    return LatentKernelBackbone(
        trunk,
        hidden_size=model["hidden_size"],
        cond_dim=model["cond_dim"],
        structure=build_structure(model),
        latent_blocks=model["latent_blocks"],
        mask_index=mask_index,
        latent_emb_std=model["latent_emb_std"],
        latent_film_std=model["latent_film_std"],
        latent_site=model.get("latent_site", BLOCK),
        router_reads=model.get("router_reads", SHARED_BLOCKS),
    )

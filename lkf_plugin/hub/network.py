"""The network of an exported folder: its sizes, and the names of its weights.

MDLM's plain network lies under ``backbone.`` in our checkpoints and under ``backbone.trunk.`` in an
export; the latent kernel's names are the same in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from lkf_plugin.backbone import build_backbone
from lkf_plugin.errors import UserError
from lkf_plugin.exchange.foreign import PREFIX
from lkf_plugin.methods.denoiser import build_denoiser

TRUNK = "trunk."
SIZES = ("hidden_size", "cond_dim", "n_blocks", "n_heads", "length", "dropout")


def network_sizes(model: Mapping[str, Any]) -> dict[str, Any]:
    """The group ``model`` as ``LKFConfig`` names it."""
    sizes = {key: model[key] for key in SIZES}
    sizes |= {"network_type": model["type"], "trunk": model.get("trunk") or "matched"}
    lkf = model["type"] == "lkf"
    sizes["num_components"] = model["num_components"] if lkf else 1
    sizes["latent_blocks"] = model["latent_blocks"] if lkf else 1
    return sizes


def empty_network(sizes: Mapping[str, Any], vocab_size: int, mask_index: int) -> nn.Module:
    """Our network of these sizes, without storage."""
    model = dict(sizes) | {"type": sizes["network_type"]}
    model |= {"latent": "sequence", "block_components": 1, "block_length": None}
    model |= {"latent_emb_std": 1.0, "latent_film_std": 0.0}  # starts, which weights replace
    with torch.device("meta"):
        if model["type"] == "lkf":
            return build_backbone(model, vocab_size, mask_index)
        return build_denoiser(model, vocab_size)


def averaged_names(network: nn.Module) -> list[str]:
    """Names of the weights that an average follows, in its order."""
    return [name for name, weight in network.named_parameters() if weight.requires_grad]


def average_by_name(
    network: nn.Module, average: Mapping[str, Any], source: object
) -> dict[str, Tensor]:
    """A checkpoint's weight average by names.

    Raises:
        UserError: it is of another network.
    """
    names, shadows = averaged_names(network), average["shadow_params"]
    shapes = {name: weight.shape for name, weight in network.named_parameters()}
    if [shapes[name] for name in names] != [shadow.shape for shadow in shadows]:
        raise UserError(f"{source} is damaged: its weight average is of another network.")
    return dict(zip(names, shadows, strict=True))


def exported_names(state: Mapping[str, Tensor], network_type: str) -> dict[str, Tensor]:
    """Our names inside the network as the modelling file has them."""
    place = PREFIX if network_type == "lkf" else PREFIX + TRUNK
    return {place + name: tensor for name, tensor in state.items()}


def own_names(state: Mapping[str, Tensor], network_type: str) -> dict[str, Tensor]:
    """The way back."""
    place = PREFIX if network_type == "lkf" else PREFIX + TRUNK
    return {name.removeprefix(place): tensor for name, tensor in state.items()}

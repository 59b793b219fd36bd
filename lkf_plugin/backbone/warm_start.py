"""Starting a mixture from another model: the same trunk, a new router, new latents.

From a factorised model all latents are new. A mixture with a latent per sequence goes on as it is,
or becomes one with latents per block as well: its router and embeddings are kept.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lkf_plugin.backbone.latent import LatentKernelBackbone
from lkf_plugin.checkpoint_file import read_checkpoint
from lkf_plugin.errors import UserError

PREFIXES = ("backbone.trunk.", "backbone.")
EMBEDDING = "latent_emb.weight"
ROUTER = ("router.hidden.weight", "router.hidden.bias", "router.out.weight", "router.out.bias")
NEIGHBOURS = 0.1  # how far block components that come from one lie apart, in its spread


def trunk_weights(
    checkpoint: dict[str, Any], names: list[str], path: str | Path
) -> dict[str, Tensor]:
    """Trunk tensors by their name inside the trunk.

    The moving average is taken where the checkpoint has one.
    """
    state = checkpoint["state_dict"]
    prefix = next((p for p in PREFIXES if p + names[0] in state), None)
    if prefix is None:
        raise UserError(
            f"{path} has no trunk like this model's: model.trunk and model.type must be those of "
            "the checkpoint."
        )
    missing = [n for n in names if prefix + n not in state]
    if missing:
        raise UserError(
            f"{path} lacks {missing[0]} of this model: take model.n_blocks and model.trunk of the "
            "checkpoint."
        )
    return _averaged(checkpoint, names, {n: state[prefix + n] for n in names}, path)


def latent_weights(
    checkpoint: dict[str, Any], trunk_size: int, path: str | Path
) -> dict[str, Tensor] | None:
    """Router and latent embedding of a mixture, None of a model with one component."""
    state = checkpoint["state_dict"]
    embedding = state.get(f"backbone.{EMBEDDING}")
    if embedding is None or embedding.shape[0] == 1:
        return None
    names = [*ROUTER, EMBEDDING]
    if f"backbone.{ROUTER[-1]}" not in state or len(state[f"backbone.{ROUTER[-1]}"]) != len(
        embedding
    ):
        raise UserError(
            f"{path} has latents per block: init.from_checkpoint starts from an MDLM, an M = 1 or "
            "a latent=sequence checkpoint."
        )
    weights = {n: state[f"backbone.{n}"] for n in names}
    return _averaged(checkpoint, names, weights, path, trunk_size)


def _averaged(
    checkpoint: dict[str, Any],
    names: list[str],
    weights: dict[str, Tensor],
    path: str | Path,
    first: int = 0,
) -> dict[str, Tensor]:
    """The moving average of these parameters, where there is one.

    It is a list in parameter order: the trunk's come first, then the router's and the embedding.
    """
    ema = checkpoint.get("ema")
    if ema is None:
        return weights
    shadows = ema["shadow_params"][first : first + len(names)]
    if len(shadows) < len(names):
        raise UserError(f"{path} is damaged: its weight average is not whole.")
    return dict(zip(names, shadows, strict=True))


def start_from(backbone: LatentKernelBackbone, path: str | Path) -> None:
    """Copies the trunk of an MDLM or M = 1 checkpoint into ``backbone``, or of an LKF one.

    The potentials' last layers stay zero and the latent embedding N(0, 1), so every component
    starts near the loaded denoiser. From LKF with K components a structure with K latents per
    sequence and m per block takes the router, and component k m + j the embedding of k with a
    tenth of its spread as noise, since equal ones would stay equal.

    Raises:
        UserError: no such file, another architecture or other shapes.
    """
    parameters = dict(backbone.trunk.named_parameters())
    checkpoint = read_checkpoint(path)
    weights = trunk_weights(checkpoint, list(parameters), path)
    for name, parameter in parameters.items():
        if weights[name].shape != parameter.shape:
            raise UserError(
                f"{name} has shape {tuple(weights[name].shape)} in {path} and "
                f"{tuple(parameter.shape)} in this model: give both the same model sizes, length "
                "and tokenizer."
            )
    latent = latent_weights(checkpoint, len(parameters), path)
    if latent is not None:
        _check_latent(backbone, latent, path)
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(weights[name])
        if latent is not None:
            _go_on(backbone, latent)


def _check_latent(
    backbone: LatentKernelBackbone, latent: dict[str, Tensor], path: str | Path
) -> None:
    structure, components = backbone.structure, len(latent[EMBEDDING])
    if structure.sequence_components != components:
        raise UserError(
            f"{path} is a mixture of {components} components: init.from_checkpoint starts from a "
            "model with one, so name an M = 1 or an MDLM checkpoint; or take "
            f"model.num_components={components}, with latents per block or without."
        )


def _go_on(backbone: LatentKernelBackbone, latent: dict[str, Tensor]) -> None:
    """Router and embeddings of a mixture, in place."""
    own = dict(backbone.named_parameters())
    for name in ROUTER:
        own[name].copy_(latent[name])
    apart_KmC = backbone.latent_emb.weight.unflatten(0, (-1, backbone.structure.block_components))
    start_KC = latent[EMBEDDING]
    block_components = backbone.structure.block_components
    spread = NEIGHBOURS * start_KC.std() / apart_KmC.std() if block_components > 1 else 0.0
    backbone.latent_emb.weight.copy_((start_KC[:, None] + spread * apart_KmC).flatten(0, 1))

"""Starting a mixture from weights.

From a factorised model it takes the trunk, and its router and latent are new; from a mixture of as
many components it takes everything.
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


def trunk_weights(
    checkpoint: dict[str, Any], names: list[str], path: str | Path
) -> dict[str, Tensor]:
    """Trunk tensors by their name inside the trunk, from an M = 1 or an MDLM checkpoint.

    The moving average is taken where the checkpoint has one.
    """
    state = checkpoint["state_dict"]
    prefix = next((p for p in PREFIXES if p + names[0] in state), None)
    if prefix is None:
        raise UserError(
            f"{path} has no trunk like this model's: model.trunk and model.type must be those of "
            "the checkpoint."
        )
    if (components := components_of(checkpoint)) != 1:
        raise UserError(
            f"{path} is a mixture of {components} components: init.from_checkpoint starts from "
            "a model with one, so name an M = 1 or an MDLM checkpoint, or train as many."
        )
    missing = [n for n in names if prefix + n not in state]
    if missing:
        raise UserError(
            f"{path} lacks {missing[0]} of this model: take model.n_blocks and model.trunk of the "
            "checkpoint."
        )
    weights = {n: state[prefix + n] for n in names}
    ema = checkpoint.get("ema")
    if ema is not None:
        # the average is a list in parameter order; the trunk's parameters come first
        shadows = ema["shadow_params"][: len(names)]
        if len(shadows) < len(names):
            raise UserError(f"{path} is damaged: its weight average is not whole.")
        weights = dict(zip(names, shadows, strict=True))
    return weights


def components_of(checkpoint: dict[str, Any]) -> int:
    """M of a checkpoint; 1 for a network without a latent."""
    table = checkpoint["state_dict"].get("backbone.latent_emb.weight")
    return 1 if table is None else int(table.shape[0])


def mixture_weights(
    checkpoint: dict[str, Any], names: list[str], path: str | Path
) -> dict[str, Tensor]:
    """All tensors of a mixture, the moving average where the checkpoint has one."""
    state = checkpoint["state_dict"]
    missing = [name for name in names if f"backbone.{name}" not in state]
    if missing:
        raise UserError(
            f"{path} lacks {missing[0]} of this model: take model.n_blocks and model.trunk of the "
            "checkpoint."
        )
    ema = checkpoint.get("ema")
    if ema is None:
        return {name: state[f"backbone.{name}"] for name in names}
    if len(ema["shadow_params"]) != len(names):
        raise UserError(f"{path} is damaged: its weight average is not whole.")
    return dict(zip(names, ema["shadow_params"], strict=True))


def start_from(backbone: LatentKernelBackbone, path: str | Path) -> None:
    """Copies a checkpoint's weights into ``backbone``, the average where there is one.

    Of an M = 1 or MDLM checkpoint it is the trunk: the router's last layer stays zero and the
    latent embedding N(0, 1), so every component starts near the loaded denoiser. Of a mixture of
    as many components it is everything.

    Raises:
        UserError: no such file, another architecture or other shapes.
    """
    checkpoint = read_checkpoint(path)
    M = backbone.num_components
    whole = M > 1 and components_of(checkpoint) == M
    parameters = dict((backbone if whole else backbone.trunk).named_parameters())
    weights = (mixture_weights if whole else trunk_weights)(checkpoint, list(parameters), path)
    for name, parameter in parameters.items():
        if weights[name].shape != parameter.shape:
            raise UserError(
                f"{name} has shape {tuple(weights[name].shape)} in {path} and "
                f"{tuple(parameter.shape)} in this model: give both the same model sizes, length "
                "and tokenizer."
            )
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(weights[name])
